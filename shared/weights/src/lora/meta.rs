use std::collections::BTreeMap;

use super::LoraError;

/// Where an adapter or a trained model comes from; stored in its file's header. Empty (zero) in files of other programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterMeta {
    /// SHA-256 of the base `model.safetensors`.
    pub base_sha256: String,
    /// Optimiser steps taken.
    pub step: u64,
    /// Content hash of the training data.
    pub dataset_hash: String,
}

impl AdapterMeta {
    /// What a file's header says. A step that is no number is zero here and a fault for the strict readers.
    pub(super) fn of(header: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| header.get(key).cloned().unwrap_or_default();
        let step = text("step").parse().unwrap_or(0);
        Self { base_sha256: text("base_sha256"), step, dataset_hash: text("dataset_hash") }
    }

    /// Header entries.
    pub(super) fn entries(&self) -> [(&'static str, String); 3] {
        [
            ("base_sha256", self.base_sha256.clone()),
            ("step", self.step.to_string()),
            ("dataset_hash", self.dataset_hash.clone()),
        ]
    }

    /// Refuses another base than the one trained on. Files that name none are taken at their word: true when they do.
    ///
    /// # Errors
    /// [`LoraError::WrongBase`] with both hashes.
    pub fn check_base(&self, base_sha256: &str) -> Result<bool, LoraError> {
        if self.base_sha256.is_empty() {
            return Ok(false);
        }
        if self.base_sha256 != base_sha256 {
            let (wanted, found) = (self.base_sha256.clone(), base_sha256.to_string());
            return Err(LoraError::WrongBase { wanted, found });
        }
        Ok(true)
    }
}
