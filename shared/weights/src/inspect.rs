use std::path::Path;

use serde::Serialize;

use crate::{
    CONFIG_FILE, ModelConfig, ModelDir, NameReport, SafetensorsFile, TensorSpec, WeightsError, lm_inventory,
    mimi_inventory, sha256_file,
};

/// One file of a model directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    pub name: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// What a model directory holds.
#[derive(Debug, Clone, Serialize)]
pub struct ModelInfo {
    pub config: ModelConfig,
    pub files: Vec<FileInfo>,
    /// Elements of the language model file.
    pub lm_parameters: u64,
    /// Elements of the codec file.
    pub mimi_parameters: u64,
}

impl ModelInfo {
    /// The entry of one file.
    pub fn file(&self, name: &str) -> Option<&FileInfo> {
        self.files.iter().find(|f| f.name == name)
    }
}

/// Reads the configuration and the headers of both weight files and hashes every file. Names are not compared.
pub fn inspect(dir: &Path) -> Result<ModelInfo, WeightsError> {
    let paths = ModelDir::new(dir);
    let config = paths.load_config()?;
    let lm = SafetensorsFile::open(&paths.lm())?;
    let mimi = SafetensorsFile::open(&paths.mimi())?;
    let mut files = Vec::new();
    for name in [crate::LM_FILE, crate::MIMI_FILE, config.tokenizer.as_str(), CONFIG_FILE] {
        let path = dir.join(name);
        let bytes = std::fs::metadata(&path).map_err(WeightsError::io("stat", &path))?.len();
        files.push(FileInfo { name: name.to_string(), bytes, sha256: sha256_file(&path)? });
    }
    Ok(ModelInfo { config, files, lm_parameters: lm.elements(), mimi_parameters: mimi.elements() })
}

/// [`inspect`], and both weight files hold exactly the tensors of the configuration.
pub fn verify(dir: &Path) -> Result<ModelInfo, WeightsError> {
    let info = inspect(dir)?;
    let paths = ModelDir::new(dir);
    check(&paths.lm(), &lm_inventory(&info.config.lm))?;
    check(&paths.mimi(), &mimi_inventory(&info.config.mimi))?;
    Ok(info)
}

fn check(path: &Path, wanted: &[TensorSpec]) -> Result<(), WeightsError> {
    let report = NameReport::compare(&SafetensorsFile::open(path)?, wanted);
    if report.is_clean() { Ok(()) } else { Err(WeightsError::Names { path: path.to_path_buf(), report }) }
}
