use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{ModelConfig, WeightsError};

/// Language model weights.
pub const LM_FILE: &str = "model.safetensors";
/// Codec weights.
pub const MIMI_FILE: &str = "mimi.safetensors";
/// SentencePiece model of the presets; [`ModelConfig::tokenizer`] names it.
pub const TOKENIZER_FILE: &str = "tokenizer.model";
/// [`ModelConfig`].
pub const CONFIG_FILE: &str = "config.json";

/// Paths inside a model directory.
#[derive(Debug, Clone)]
pub struct ModelDir {
    root: PathBuf,
}

impl ModelDir {
    /// Names a directory; nothing is read.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lm(&self) -> PathBuf {
        self.root.join(LM_FILE)
    }

    pub fn mimi(&self) -> PathBuf {
        self.root.join(MIMI_FILE)
    }

    pub fn config(&self) -> PathBuf {
        self.root.join(CONFIG_FILE)
    }

    /// The tokenizer under its usual name; a configuration may name another file ([`ModelDir::tokenizer_of`]).
    pub fn tokenizer(&self) -> PathBuf {
        self.root.join(TOKENIZER_FILE)
    }

    /// The tokenizer that `config` names.
    pub fn tokenizer_of(&self, config: &ModelConfig) -> PathBuf {
        self.root.join(&config.tokenizer)
    }

    /// Reads and validates `config.json`.
    pub fn load_config(&self) -> Result<ModelConfig, WeightsError> {
        ModelConfig::read(&self.config())
    }
}

/// A hidden name beside `path` for what is being written and will be renamed to it; one per process.
pub fn temporary_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}", std::process::id()))
}

/// SHA-256 of a file, lower-case hex, read in pieces.
pub fn sha256_file(path: &Path) -> Result<String, WeightsError> {
    let mut file = std::fs::File::open(path).map_err(WeightsError::io("open", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(WeightsError::io("read", path))?;
        if n == 0 {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}
