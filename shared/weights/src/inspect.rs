use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    CONFIG_FILE, CanonicalReader, CheckpointSource, ModelConfig, ModelDir, TensorSpec, WeightsError,
    canonical, check_downloaded, check_tokenizer_of, lm_inventory, mimi_inventory, sha256_file,
};

/// One file of a model directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    pub name: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// What the weights of one model are: one file or shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointInfo {
    /// How the names are spelled; `published` are those of the inventories.
    pub spelling: String,
    pub tensors: usize,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Tensors of each type.
    pub dtypes: BTreeMap<&'static str, usize>,
    /// Identity: [`crate::checkpoint_sha256`].
    pub sha256: String,
    /// Free-form strings of the headers.
    pub metadata: BTreeMap<String, String>,
    pub files: Vec<FileInfo>,
}

/// What a model directory holds.
#[derive(Debug, Clone, Serialize)]
pub struct ModelInfo {
    pub config: ModelConfig,
    /// Every file of the model: weights with their shards, tokenizer, configuration.
    pub files: Vec<FileInfo>,
    /// Elements of the language model.
    pub lm_parameters: u64,
    /// Elements of the codec.
    pub mimi_parameters: u64,
    pub lm: CheckpointInfo,
    pub mimi: CheckpointInfo,
}

impl ModelInfo {
    /// The entry of one file.
    pub fn file(&self, name: &str) -> Option<&FileInfo> {
        self.files.iter().find(|f| f.name == name)
    }
}

/// Reads the configuration and the headers of all weight files and hashes every file. Names are not compared.
pub fn inspect(dir: &Path) -> Result<ModelInfo, WeightsError> {
    let paths = ModelDir::new(dir);
    let config = paths.load_config()?;
    let lm = inspect_checkpoint(&paths.lm())?;
    let mimi = inspect_checkpoint(&paths.mimi())?;
    let tokenizer = paths.tokenizer_of(&config);
    check_downloaded(&tokenizer)?;
    let rest = file_infos(&[tokenizer, dir.join(CONFIG_FILE)])?;
    Ok(ModelInfo {
        files: [lm.files.clone(), mimi.files.clone(), rest].concat(),
        lm_parameters: lm.parameters,
        mimi_parameters: mimi.parameters,
        config,
        lm,
        mimi,
    })
}

/// Reads the headers of one checkpoint in any form ([`CheckpointSource::open`]) and hashes its files.
pub fn inspect_checkpoint(path: &Path) -> Result<CheckpointInfo, WeightsError> {
    let source = CheckpointSource::open(path)?;
    let spelling = canonical::detect(&source)?.to_string();
    let files = file_infos(&source.paths().iter().map(|p| p.to_path_buf()).collect::<Vec<_>>())?;
    let mut dtypes = BTreeMap::new();
    for (_, entry) in source.tensors() {
        *dtypes.entry(entry.dtype.name()).or_insert(0) += 1;
    }
    let sha256 = match files.as_slice() {
        [one] => one.sha256.clone(),
        _ => crate::source::identity_of_shards(files.iter().map(|f| (f.name.as_str(), f.sha256.as_str()))),
    };
    Ok(CheckpointInfo {
        spelling,
        tensors: source.tensors().count(),
        parameters: source.elements(),
        dtypes,
        sha256,
        metadata: source.metadata(),
        files,
    })
}

/// [`inspect`], and both checkpoints hold exactly the tensors of the configuration, and the tokenizer has no id that the
/// model has not.
pub fn verify(dir: &Path) -> Result<ModelInfo, WeightsError> {
    let info = inspect(dir)?;
    let paths = ModelDir::new(dir);
    verify_checkpoint(&paths.lm(), &lm_inventory(&info.config.lm))?;
    verify_checkpoint(&paths.mimi(), &mimi_inventory(&info.config.mimi))?;
    check_tokenizer_of(&paths.tokenizer_of(&info.config), &info.config)?;
    Ok(info)
}

/// Checks that a checkpoint in any form and spelling holds exactly `wanted`.
pub fn verify_checkpoint(path: &Path, wanted: &[TensorSpec]) -> Result<(), WeightsError> {
    CanonicalReader::open(path, wanted).map(drop)
}

/// Checks weights that may lie outside a model directory: a language model, or a codec when it has a quantizer. Their
/// sizes are `config`'s, else those of the `config.json` beside them, else the 7B's.
pub fn verify_weights(path: &Path, config: Option<&ModelConfig>) -> Result<(), WeightsError> {
    let config = config_beside(path, config)?;
    let source = CheckpointSource::open(path)?;
    let wanted = inventory_for(&source, &config);
    CanonicalReader::new(source, &wanted).map(drop)
}

/// `config`, else the `config.json` in the directory or beside the file `path`, else that of the 7B.
pub(crate) fn config_beside(path: &Path, config: Option<&ModelConfig>) -> Result<ModelConfig, WeightsError> {
    if let Some(config) = config {
        return Ok(config.clone());
    }
    let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let beside = dir.join(CONFIG_FILE);
    if beside.exists() { ModelConfig::read(&beside) } else { ModelConfig::preset("personaplex-7b") }
}

/// The inventory that weights are to be compared with: only a codec has a quantizer.
pub(crate) fn inventory_for(source: &CheckpointSource, config: &ModelConfig) -> Vec<TensorSpec> {
    let is_codec = source.tensors().any(|(name, _)| name.starts_with("quantizer."));
    if is_codec { mimi_inventory(&config.mimi) } else { lm_inventory(&config.lm) }
}

/// Names, sizes and hashes, several files at a time.
fn file_infos(paths: &[PathBuf]) -> Result<Vec<FileInfo>, WeightsError> {
    let one = |path: &PathBuf| -> Result<FileInfo, WeightsError> {
        let bytes = std::fs::metadata(path).map_err(WeightsError::io("stat", path))?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(FileInfo { name, bytes, sha256: sha256_file(path)? })
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut infos = Vec::new();
    for group in paths.chunks(cores) {
        std::thread::scope(|scope| {
            let hashes: Vec<_> = group.iter().map(|path| scope.spawn(move || one(path))).collect();
            for hash in hashes {
                infos.push(hash.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(())
        })?;
    }
    Ok(infos)
}
