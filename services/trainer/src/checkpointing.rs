//! Checkpoint folders: adapter in the published names, optimizer state beside it.
//!
//! The folder is complete before it is reported; it is listed in the database after every file is stored.

use std::path::Path;

use artifacts::{Artifacts, sha256_hex};
use domain::RunId;
use domain::dataset::DatasetFile;
use personaplex::{Adapter, AdapterMeta, Lm};
use serde::{Deserialize, Serialize};
use store::runs::Checkpoint;
use tch::Tensor;

use crate::TrainError;
use crate::optim::AdamW;

const STATE: &str = "train_state.safetensors";
const STATE_FACTS: &str = "train_state.json";

/// What a state belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFacts {
    /// Optimizer updates so far.
    pub step: u32,
    /// Run.
    pub run_id: RunId,
    /// SHA-256 of the training specification.
    pub spec_sha256: String,
}

impl StateFacts {
    /// Facts of a run at a step.
    #[must_use]
    pub fn new(run_id: RunId, spec: &domain::run::TrainingSpec, step: u32) -> Self {
        let text = serde_json::to_vec(spec).expect("specifications are plain numbers and text");
        Self { step, run_id, spec_sha256: sha256_hex(&text) }
    }
}

/// Writes a checkpoint folder.
///
/// # Errors
/// When the disk refuses.
pub fn save(
    dir: &Path,
    lm: &Lm,
    optim: &AdamW,
    facts: &StateFacts,
    base_sha256: &str,
    dataset: &str,
) -> Result<(), TrainError> {
    std::fs::create_dir_all(dir).map_err(|source| TrainError::Io { path: dir.into(), source })?;
    let meta = AdapterMeta {
        base_sha256: base_sha256.into(),
        step: u64::from(facts.step),
        dataset_hash: dataset.into(),
    };
    lm.adapter()?.save(dir, lm.config(), &meta)?;
    Tensor::write_safetensors(&optim.state(), dir.join(STATE))?;
    let path = dir.join(STATE_FACTS);
    let text = serde_json::to_vec_pretty(facts).expect("plain numbers and text");
    std::fs::write(&path, text).map_err(|source| TrainError::Io { path, source })
}

/// Takes up a checkpoint folder; returns its step.
///
/// # Errors
/// When a file is missing, damaged or of another run or specification.
pub fn load(
    dir: &Path,
    lm: &mut Lm,
    optim: impl FnOnce(&Lm) -> AdamW,
    expected: &StateFacts,
) -> Result<(AdamW, u32), TrainError> {
    let path = dir.join(STATE_FACTS);
    let bad = |detail: String| TrainError::Checkpoint { path: path.clone(), detail };
    let text = std::fs::read(&path).map_err(|source| TrainError::Io { path: path.clone(), source })?;
    let facts: StateFacts = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if (facts.run_id, &facts.spec_sha256) != (expected.run_id, &expected.spec_sha256) {
        return Err(bad("belongs to another run or specification".into()));
    }
    lm.set_adapter(&Adapter::load(dir, lm.config())?)?;
    let mut optim = optim(lm);
    let path = dir.join(STATE);
    optim.restore(Tensor::read_safetensors(&path)?, facts.step, &path)?;
    Ok((optim, facts.step))
}

/// Stores a local checkpoint folder file by file.
///
/// # Errors
/// When the store refuses.
pub async fn store_dir(
    artifacts: &Artifacts,
    dir: &Path,
    prefix: &str,
) -> Result<Vec<DatasetFile>, artifacts::ArtifactsError> {
    let mut files = Vec::new();
    for path in local_files(dir)? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stored = artifacts.put_file(&format!("{prefix}/{name}"), &path).await?;
        files.push(DatasetFile { path: name, ..stored });
    }
    Ok(files)
}

fn local_files(dir: &Path) -> Result<Vec<std::path::PathBuf>, artifacts::ArtifactsError> {
    let io = |source| artifacts::ArtifactsError::Io { path: dir.into(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Whether every file of a listed checkpoint is there with its hash; a damaged one is passed over for the one before.
pub async fn is_whole(artifacts: &Artifacts, checkpoint: &Checkpoint) -> bool {
    for file in &checkpoint.files {
        let key = format!("{}/{}", checkpoint.prefix, file.path);
        if let Err(error) = artifacts.get_verified(&key, &file.sha256).await {
            tracing::warn!(%error, step = checkpoint.step, "checkpoint is not whole");
            return false;
        }
    }
    true
}
