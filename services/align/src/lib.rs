//! Times for every script word, stereo routing, sidecars and injection offsets.
//!
//! [`hearing`] finds every written token in the sound (or [`words`] takes what the speech engine reports), [`align`]
//! makes the stereo file and the sidecar of a dialogue from it, [`gates`] and [`checks`] say what is wrong with the
//! result. A dialogue that does not pass is kept with its faults; leaving it out is the `dataset` service's work.

#![forbid(unsafe_code)]

pub mod align;
pub mod checks;
pub mod error;
pub mod fill;
pub mod gates;
mod handler;
pub mod hearing;
pub mod words;

use std::path::PathBuf;

use chassis::{Boot, Service};
use serde::Deserialize;

pub use checks::Limits;
pub use error::AlignError;
pub use handler::AlignHandler;

/// `[align]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignSettings {
    /// Where word times come from.
    pub backend: Backend,
    /// Folder of the acoustic model and its dictionary.
    pub model: PathBuf,
    /// Largest share of words with interpolated times.
    pub max_estimated_share: f64,
    /// Largest share of words that the voice left out, repeated or added.
    pub max_edit_rate: f64,
    /// Smallest share of words that are heard where they are said to be.
    pub min_coverage: f64,
    /// Smallest distance between speech and what lies between it, dB.
    pub min_speech_ratio_db: f64,
}

impl AlignSettings {
    /// The limits of the checks.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        Limits {
            max_estimated_share: self.max_estimated_share,
            max_edit_rate: self.max_edit_rate,
            min_coverage: self.min_coverage,
            min_speech_ratio_db: self.min_speech_ratio_db,
        }
    }
}

/// Where word times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The sound itself.
    Acoustic,
    /// The speech engine's own report.
    Native,
}

/// Builds the service.
///
/// # Errors
/// When the settings are wrong. A missing model is no reason not to start: jobs fail with `alignment_failed` then.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: AlignSettings = boot.settings.section("align")?;
    for (key, share) in [
        ("max_estimated_share", settings.max_estimated_share),
        ("max_edit_rate", settings.max_edit_rate),
        ("min_coverage", settings.min_coverage),
    ] {
        anyhow::ensure!((0.0..=1.0).contains(&share), "[align].{key} must be 0 to 1, not {share}");
    }
    let ratio = settings.min_speech_ratio_db;
    anyhow::ensure!(
        (0.0..=90.0).contains(&ratio),
        "[align].min_speech_ratio_db must be 0 to 90, not {ratio}"
    );
    Ok(Service::new().handle(AlignHandler::new(settings)))
}
