//! Checkpoint folders: what was trained in the published names, the optimizer's state and the run's beside it.

use std::path::Path;

use domain::run::MetricPoint;
use personaplex::{AdapterMeta, Lm, Trained};
use tch::Tensor;

use crate::TrainError;
use crate::optim::AdamW;
use crate::plan::State;

/// Every weight of a model that is trained as a whole.
pub const WHOLE: &str = "consolidated.safetensors";
const OPTIMIZER: &str = "train_state.safetensors";
const STATE: &str = "train_state.json";
const METRICS: &str = "metrics_at_save.json";

/// Writes a checkpoint folder.
///
/// # Errors
/// When the disk refuses.
pub fn save(
    dir: &Path,
    lm: &Lm,
    optim: &AdamW,
    state: &State,
    metrics: &[MetricPoint],
) -> Result<(), TrainError> {
    std::fs::create_dir_all(dir).map_err(|source| TrainError::Io { path: dir.into(), source })?;
    let meta = AdapterMeta {
        base_sha256: state.base_sha256.clone(),
        step: u64::from(state.step),
        dataset_hash: state.dataset_sha256.clone(),
    };
    if *lm.trained() == Trained::Everything {
        lm.save_whole(&dir.join(WHOLE), &meta)?;
    } else {
        lm.adapter()?.save(dir, lm.config(), &meta)?;
    }
    Tensor::write_safetensors(&optim.state(), dir.join(OPTIMIZER))?;
    write_json(&dir.join(METRICS), metrics)?;
    write_json(&dir.join(STATE), state)
}

fn write_json<T: serde::Serialize + ?Sized>(path: &Path, value: &T) -> Result<(), TrainError> {
    let text = serde_json::to_vec_pretty(value).expect("plain numbers and text");
    std::fs::write(path, text).map_err(|source| TrainError::Io { path: path.into(), source })
}

/// Where the run stood.
///
/// # Errors
/// When the file is missing or damaged.
pub fn read_state(dir: &Path) -> Result<State, TrainError> {
    let path = dir.join(STATE);
    let text = std::fs::read(&path).map_err(|source| TrainError::Io { path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|e| TrainError::Checkpoint { path, detail: e.to_string() })
}

/// Takes up the optimizer's state.
///
/// # Errors
/// When the file is missing, damaged or of other tensors.
pub fn restore(dir: &Path, optim: &mut AdamW, updates: u32) -> Result<(), TrainError> {
    let path = dir.join(OPTIMIZER);
    optim.restore(Tensor::read_safetensors(&path)?, updates, &path)
}
