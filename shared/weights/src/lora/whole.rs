use std::collections::BTreeMap;
use std::path::Path;

use super::{AdapterMeta, FORMAT_VERSION, LoraError};
use crate::init::whole_dir;
use crate::{
    CONFIG_FILE, CanonicalReader, CheckpointSource, LM_FILE, MIMI_FILE, ModelConfig, ModelDir, WeightsError,
    checkpoint_sha256, lm_inventory, sha256_file,
};

/// Key of the header that says that every tensor was trained.
const WHOLE_KEY: &str = "full_finetuning";

/// What [`export_whole`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeReport {
    /// What the checkpoint says of itself.
    pub meta: AdapterMeta,
    /// Whether the checkpoint named this base.
    pub base_named: bool,
    /// Identity of the new language model.
    pub sha256: String,
}

/// Header of a language model of which every tensor was trained, for its `model.safetensors` or whatever a checkpoint
/// calls that file.
pub fn whole_header(meta: &AdapterMeta) -> BTreeMap<String, String> {
    let own = [("format_version", FORMAT_VERSION.to_string()), (WHOLE_KEY, true.to_string())];
    own.into_iter().chain(meta.entries()).map(|(k, v)| (k.to_string(), v)).collect()
}

/// Reads [`whole_header`] back. `None` for a model that was not fully fine-tuned here.
///
/// # Errors
/// When the file cannot be opened.
pub fn whole_meta(file: &Path) -> Result<Option<AdapterMeta>, WeightsError> {
    let header = CheckpointSource::open(file)?.metadata();
    Ok(header.contains_key(WHOLE_KEY).then(|| AdapterMeta::of(&header)))
}

/// Writes a complete model directory: the fully trained language model of `file`, and codec, tokenizer and configuration
/// of the base it was trained from. `out_dir` must not exist and appears complete or not at all.
///
/// # Errors
/// When the file does not hold exactly the base's tensors, is no fully fine-tuned model or names another base.
pub fn export_whole(base_dir: &Path, file: &Path, out_dir: &Path) -> Result<WholeReport, LoraError> {
    let base = ModelDir::new(base_dir);
    let config = base.load_config()?;
    let reader = CanonicalReader::open(file, &lm_inventory(&config.lm))?;
    let meta = whole_meta(file)?.ok_or_else(|| LoraError::NotTrained { path: file.to_path_buf() })?;
    let base_named = meta.check_base(&checkpoint_sha256(&base.lm())?)?;
    drop(reader);
    let sha256 = beside_base(base_dir, &config, out_dir, |out| {
        std::fs::copy(file, out).map_err(WeightsError::io("copy", file))?;
        Ok(sha256_file(out)?)
    })?;
    Ok(WholeReport { meta, base_named, sha256 })
}

/// A model directory whose language model is written by `write` and the rest copied from a base.
pub(super) fn beside_base<T>(
    base_dir: &Path,
    config: &ModelConfig,
    out_dir: &Path,
    write: impl FnOnce(&Path) -> Result<T, LoraError>,
) -> Result<T, LoraError> {
    whole_dir(out_dir, |temporary| {
        let made = write(&temporary.join(LM_FILE))?;
        for name in [MIMI_FILE, CONFIG_FILE, config.tokenizer.as_str()] {
            let from = base_dir.join(name);
            std::fs::copy(&from, temporary.join(name)).map_err(WeightsError::io("copy", &from))?;
        }
        Ok(made)
    })
}
