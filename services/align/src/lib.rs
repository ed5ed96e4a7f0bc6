//! Times for every script word, stereo routing, sidecars and injection offsets.
//!
//! [`words`] turns what the speech engine reports into one span for every written token, [`align`] makes the stereo
//! file and the sidecar of a dialogue from it, [`gates`] says what is wrong with the result. A dialogue that does not
//! pass is kept with its faults; leaving it out is the `dataset` service's work.

#![forbid(unsafe_code)]

pub mod align;
pub mod error;
pub mod fill;
pub mod gates;
mod handler;
pub mod words;

use chassis::{Boot, Service};
use serde::Deserialize;

pub use error::AlignError;
pub use handler::AlignHandler;

/// `[align]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignSettings {
    /// Where word times come from.
    pub backend: Backend,
    /// Largest share of words with interpolated times.
    pub max_estimated_share: f64,
}

/// Where word times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The speech engine's own report.
    Native,
}

/// Builds the service.
///
/// # Errors
/// When the settings are wrong.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: AlignSettings = boot.settings.section("align")?;
    let share = settings.max_estimated_share;
    anyhow::ensure!((0.0..=1.0).contains(&share), "[align].max_estimated_share must be 0 to 1, not {share}");
    Ok(Service::new().handle(AlignHandler { settings }))
}
