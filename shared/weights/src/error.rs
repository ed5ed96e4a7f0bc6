use std::path::{Path, PathBuf};

use crate::report::NameReport;

/// What can be wrong with a model file or directory. Every message names the file and the value that was wrong.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("no preset named {name:?}; there are {known:?}")]
    UnknownPreset { name: String, known: Vec<&'static str> },
    #[error("preset {name:?} carries no tokenizer; give one")]
    NoTokenizer { name: String },
    #[error("{path} is not a SentencePiece model: {detail}")]
    BadTokenizer { path: PathBuf, detail: String },
    #[error("{path} is not a model configuration: {source}")]
    Config { path: PathBuf, source: serde_json::Error },
    #[error("model configuration is not usable: {detail}")]
    InvalidConfig { detail: String },
    #[error("{path} is empty (0 bytes); the download or the copy did not happen")]
    Empty { path: PathBuf },
    #[error("{path} is a directory where a file is wanted")]
    Directory { path: PathBuf },
    #[error("{path} is a git-lfs pointer, not the file itself; fetch it with git lfs")]
    LfsPointer { path: PathBuf },
    #[error(
        "{path} is a PyTorch file ({form}), not safetensors; convert it first: load it with \
         torch.load(path, map_location=\"cpu\", weights_only=True) and write its tensors with safetensors.torch.save_file"
    )]
    TorchFile { path: PathBuf, form: &'static str },
    #[error(
        "{path} is {kind}, not a model file: it starts with {start:?}; the download was answered with an error"
    )]
    Document { path: PathBuf, kind: &'static str, start: String },
    #[error("{path} is {format}, not safetensors")]
    OtherFormat { path: PathBuf, format: &'static str },
    #[error("{path} is not a safetensors file: {detail}")]
    NotSafetensors { path: PathBuf, detail: String },
    #[error("{path} has a misaligned header: its length field says {length} bytes, but {detail}")]
    MisalignedHeader { path: PathBuf, length: u64, detail: String },
    #[error("{path} names the tensor {name:?} twice in its header")]
    DuplicateName { path: PathBuf, name: String },
    #[error("{path} has overlapping tensors: {name:?} starts at byte {start}, {other:?} ends at {end}")]
    Overlap { path: PathBuf, name: String, start: u64, other: String, end: u64 },
    #[error("{path} has a gap: tensor {name:?} starts at byte {start} where {expected} was expected")]
    Gap { path: PathBuf, name: String, start: u64, expected: u64 },
    #[error("{path} is truncated: {expected} bytes announced, {found} present")]
    Truncated { path: PathBuf, expected: u64, found: u64 },
    #[error("{path} has {extra} bytes after the last tensor")]
    TrailingBytes { path: PathBuf, extra: u64 },
    #[error("{path} does not hold the tensors of its configuration: {report}")]
    Names { path: PathBuf, report: Box<NameReport> },
    #[error("{path} mixes two spellings: {first:?} and {second:?} cannot stand in one checkpoint")]
    MixedSpellings { path: PathBuf, first: String, second: String },
    #[error("{path}: {first:?} and {second:?} must be equal copies of {name:?}, and are not")]
    UnequalCopies { path: PathBuf, name: String, first: String, second: String },
    #[error(
        "{path} is a plain Moshi model: {found} tensors with 8 depformer steps, where {wanted} with 16 are wanted; \
         `ppx model convert --init-from-moshi` makes a PersonaPlex model of it"
    )]
    PlainMoshi { path: PathBuf, found: usize, wanted: usize },
    #[error("{path} is not a plain Moshi model of 8 depformer steps: {report}")]
    NotMoshi { path: PathBuf, report: Box<NameReport> },
    #[error("{path} is not a shard index: {detail}")]
    BadIndex { path: PathBuf, detail: String },
    #[error("{index} names the shard {shard:?}, which is not there")]
    MissingShard { index: PathBuf, shard: String },
    #[error("{index} says that {name:?} lies in {shard}, which does not hold it")]
    NotInShard { index: PathBuf, name: String, shard: String },
    #[error("{shard} holds {name:?}, which {index} does not place there")]
    NotInIndex { index: PathBuf, name: String, shard: String },
    #[error("both {file} and {index} are there; remove the one that is not meant")]
    Ambiguous { file: PathBuf, index: PathBuf },
    #[error("{path} has no tensor named {name:?}")]
    NoTensor { path: PathBuf, name: String },
    #[error("{path}: tensor {name:?} has type {dtype}, which nothing here computes with")]
    UnusableDtype { path: PathBuf, name: String, dtype: &'static str },
    #[error("{path} already exists")]
    Exists { path: PathBuf },
    #[error("a shard of {bytes} bytes cannot be written: {detail}")]
    BadShardSize { bytes: u64, detail: String },
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
