//! `*.safetensors.index.json`: which shard holds which tensor.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use crate::{WeightsError, sniff};

/// What is appended to the name that a checkpoint would have as one file.
const SUFFIX: &str = ".index.json";

/// The index beside the single file `path`: `model.safetensors` gives `model.safetensors.index.json`.
pub fn index_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{SUFFIX}"))
}

/// Name of one shard, counted from 1: `model-00001-of-00004.safetensors`.
pub(crate) fn shard_path(path: &Path, number: usize, of: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number:05}-of-{of:05}.safetensors"))
}

#[derive(Deserialize)]
struct RawIndex {
    weight_map: BTreeMap<String, String>,
}

/// Tensor names to plain file names of shards in the same directory.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let bad = |detail: String| WeightsError::BadIndex { path: path.into(), detail };
    drop(sniff::open(path)?);
    let bytes = std::fs::read(path).map_err(WeightsError::io("read", path))?;
    let index: RawIndex = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
    if index.weight_map.is_empty() {
        return Err(bad("it names no tensors".into()));
    }
    for shard in index.weight_map.values() {
        // A shard elsewhere would escape what a model directory's hashes cover.
        let plain = Path::new(shard).components().eq([Component::Normal(shard.as_ref())]);
        if !plain {
            return Err(bad(format!("shard {shard:?} is not a plain file name")));
        }
    }
    Ok(index.weight_map)
}

/// Text of an index.
pub(crate) fn text(total_bytes: u64, weight_map: &BTreeMap<String, String>) -> String {
    format!("{:#}\n", json!({ "metadata": { "total_size": total_bytes }, "weight_map": weight_map }))
}
