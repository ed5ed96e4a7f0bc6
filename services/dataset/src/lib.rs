//! Checks, splits and publishes datasets.
//!
//! [`check`] says why a dialogue is left out, [`split`] decides train or eval by the record's id, [`layout`] names and
//! writes the published files (finetune.md 1.1). The same dialogues always give the same bytes, so a second attempt
//! writes what the first one wrote.

#![forbid(unsafe_code)]

pub mod check;
mod handler;
pub mod layout;
pub mod split;

use chassis::{Boot, Service};
use serde::Deserialize;

pub use handler::AssembleHandler;

/// `[dataset]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSettings {
    /// Longest dialogue, seconds.
    pub max_audio_seconds: f64,
}

/// Builds the service.
///
/// # Errors
/// When the settings are wrong.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: DatasetSettings = boot.settings.section("dataset")?;
    let longest = settings.max_audio_seconds;
    anyhow::ensure!(longest > 0.0, "[dataset].max_audio_seconds must be above 0, not {longest}");
    Ok(Service::new().handle(AssembleHandler { settings }))
}
