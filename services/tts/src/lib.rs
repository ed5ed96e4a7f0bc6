//! Renders scripts to speech with per-word times.
//!
//! One [`SpeechEngine`] speaks one turn at a time; [`render`] puts the turns of a dialogue one after the other with
//! pauses that follow from the record's id, so the same dialogue always gives the same bytes.
//! Who sits on which channel is not decided here: that is `align`'s work.

pub mod engine;
pub mod error;
mod flite;
pub mod flite_engine;
mod handler;
pub mod render;
pub mod say;
pub mod voices;

use std::sync::Arc;

use chassis::{Boot, Service};
use serde::Deserialize;

pub use engine::{Capabilities, SpeechEngine, Utterance};
pub use error::TtsError;
pub use flite_engine::FliteEngine;
pub use handler::RenderHandler;

/// `[tts]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TtsSettings {
    /// Which engine speaks.
    pub engine: EngineName,
    /// Longest script, in words.
    pub max_words: usize,
}

/// Engines to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineName {
    /// The offline engine of Debian's `libflite1`.
    Flite,
}

/// Builds the service.
///
/// # Errors
/// When the settings are wrong. A missing engine is no reason not to start: jobs fail with `synthesis_failed` then.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: TtsSettings = boot.settings.section("tts")?;
    let engine: Arc<dyn SpeechEngine> = match settings.engine {
        EngineName::Flite => Arc::new(FliteEngine::new()),
    };
    anyhow::ensure!(engine.capabilities().per_turn, "{} cannot speak single turns", engine.name());
    Ok(Service::new().handle(RenderHandler { engine, max_words: settings.max_words }))
}
