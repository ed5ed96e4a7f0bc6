//! Checks, splits and publishes datasets.
//!
//! [`check`] says why a dialogue is left out, [`split`] decides train or eval by the record's id, [`layout`] names and
//! writes the published files (finetune.md 1.1). The same dialogues always give the same bytes, so a second attempt
//! writes what the first one wrote. [`import`] reads datasets made elsewhere, [`report`] says what a dataset is like.

#![forbid(unsafe_code)]

pub mod check;
mod handler;
pub mod import;
mod import_job;
pub mod layout;
mod publish;
mod readme;
pub mod report;
pub mod split;
mod tokenizer;

use chassis::settings::ArtifactsSettings;
use chassis::{Boot, Service};
use serde::Deserialize;

pub use handler::AssembleHandler;
pub use import_job::ImportHandler;

/// `[dataset]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSettings {
    /// Longest dialogue, seconds.
    pub max_audio_seconds: f64,
    /// Largest content of an archive to import, bytes.
    pub max_unpacked_bytes: u64,
    /// Licence named in the card of a dataset that brings none.
    pub license: String,
}

/// Builds the service.
///
/// # Errors
/// When the settings are wrong.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: DatasetSettings = boot.settings.section("dataset")?;
    let longest = settings.max_audio_seconds;
    anyhow::ensure!(longest > 0.0, "[dataset].max_audio_seconds must be above 0, not {longest}");
    let import_dir = boot.settings.section::<ArtifactsSettings>("artifacts")?.import_dir;
    let import = ImportHandler { settings: settings.clone(), import_dir };
    Ok(Service::new().handle(AssembleHandler { settings }).handle(import))
}
