//! The base model: its files, its configuration, and whether its weights are those of the configuration.

use std::collections::BTreeMap;

use domain::preflight::Severity::{Error, Info};
use streams::{PromptCodes, Tokenizer};
use weights::{LM_FILE, ModelConfig, ModelDir, SafetensorsFile, lm_inventory};

use crate::Inputs;
use crate::files::sha256_hex;
use crate::findings::Findings;

/// Largest file that is hashed here; the trainer hashes weights when it loads them.
const HASHED_BYTES: u64 = 32 << 20;
/// Audio streams of a full-duplex model.
const BOTH_SIDES: i64 = 16;

/// What the windows need of the base.
pub struct Base {
    pub config: ModelConfig,
    pub tokenizer: Tokenizer,
    pub codes: PromptCodes,
}

/// Reads configuration and tokenizer and compares headers and files; `None` when there is nothing to go on with.
pub fn read(inputs: &Inputs<'_>, findings: &mut Findings) -> Option<Base> {
    check_files(inputs, findings);
    let dir = ModelDir::new(inputs.base);
    let config = match dir.load_config() {
        Ok(config) => config,
        Err(error) => {
            findings.at(Error, "base_unreadable", "config.json", error.to_string());
            return None;
        }
    };
    check_shapes(&dir, &config, findings);
    if config.lm.dep_q < BOTH_SIDES {
        let detail = format!("predicts {} audio streams: the user's get no loss", config.lm.dep_q);
        findings.at(Info, "base_one_sided", "config.json", detail);
    }
    let path = dir.tokenizer_of(&config);
    let tokenizer = std::fs::read(&path)
        .map_err(|e| e.to_string())
        .and_then(|bytes| Tokenizer::from_bytes(&bytes).map_err(|e| e.to_string()));
    match tokenizer {
        Ok(tokenizer) => {
            let codes = PromptCodes { silence: config.silence_codes, sine: config.sine_codes };
            Some(Base { config, tokenizer, codes })
        }
        Err(error) => {
            findings.at(Error, "base_unreadable", &config.tokenizer, error);
            None
        }
    }
}

fn check_files(inputs: &Inputs<'_>, findings: &mut Findings) {
    for file in inputs.base_files {
        let path = inputs.base.join(&file.path);
        let found = match std::fs::metadata(&path) {
            Ok(meta) => meta.len(),
            Err(e) => {
                findings.at(Error, "base_damaged", &file.path, e.to_string());
                continue;
            }
        };
        if found != file.bytes {
            let detail = format!("has {found} bytes, {} were registered", file.bytes);
            findings.at(Error, "base_damaged", &file.path, detail);
        } else if found <= HASHED_BYTES
            && std::fs::read(&path).is_ok_and(|bytes| sha256_hex(&bytes) != file.sha256)
        {
            findings.at(Error, "base_damaged", &file.path, "its sha256 is not the registered one");
        }
    }
}

/// Names and shapes of the weights, from the header of the file (finetune.md 9, 15 and 16).
fn check_shapes(dir: &ModelDir, config: &ModelConfig, findings: &mut Findings) {
    let file = match SafetensorsFile::open(&dir.lm()) {
        Ok(file) => file,
        Err(error) => return findings.at(Error, "base_unreadable", LM_FILE, error.to_string()),
    };
    let found: BTreeMap<&str, &[i64]> = file.tensors().map(|(name, t)| (name, t.shape.as_slice())).collect();
    for spec in lm_inventory(&config.lm) {
        match found.get(spec.name.as_str()) {
            None => findings.at(Error, "base_mismatch", LM_FILE, format!("lacks {}", spec.name)),
            Some(shape) if **shape != *spec.shape => {
                let detail = format!("{} is {shape:?}, config.json says {:?}", spec.name, spec.shape);
                findings.at(Error, "base_mismatch", LM_FILE, detail);
            }
            Some(_) => {}
        }
    }
}
