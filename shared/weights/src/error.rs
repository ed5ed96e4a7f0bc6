use std::path::{Path, PathBuf};

use crate::inventory::NameReport;

/// What can be wrong with a model file or directory. Every message names the file and the value that was wrong.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("no preset named {name:?}; there are {known:?}")]
    UnknownPreset { name: String, known: Vec<&'static str> },
    #[error("preset {name:?} carries no tokenizer; give one")]
    NoTokenizer { name: String },
    #[error("{path} is not a model configuration: {source}")]
    Config { path: PathBuf, source: serde_json::Error },
    #[error("model configuration is not usable: {detail}")]
    InvalidConfig { detail: String },
    #[error("{path} is a git-lfs pointer, not the file itself; fetch it with git lfs")]
    LfsPointer { path: PathBuf },
    #[error("{path} is not a safetensors file: {detail}")]
    NotSafetensors { path: PathBuf, detail: String },
    #[error("{path} is truncated: {expected} bytes announced, {found} present")]
    Truncated { path: PathBuf, expected: u64, found: u64 },
    #[error("{path} has {extra} bytes after the last tensor")]
    TrailingBytes { path: PathBuf, extra: u64 },
    #[error("{path} does not hold the tensors of its configuration: {report}")]
    Names { path: PathBuf, report: NameReport },
    #[error("{path} has no tensor named {name:?}")]
    NoTensor { path: PathBuf, name: String },
    #[error("{path} already exists")]
    Exists { path: PathBuf },
    #[error("tensor {name:?} was written out of order or with {found} bytes instead of {expected}")]
    WrongWrite { name: String, expected: u64, found: u64 },
}

impl WeightsError {
    /// Wraps an I/O error with what was being done to which path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}
