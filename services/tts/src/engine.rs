//! What an engine must be able to do.

use crate::error::TtsError;
use crate::say::Say;

/// What an engine can do; the pipeline asks before it relies on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Speaks single turns, so that every turn's place in the audio is known.
    pub per_turn: bool,
    /// Reports the time of every word.
    pub word_times: bool,
}

/// Start and end of a word in milliseconds from the start of its utterance.
pub type Span = (u64, u64);

/// Sound of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// Samples per second.
    pub rate: u32,
    /// Mono, -1..=1.
    pub samples: Vec<f32>,
    /// One entry per word that was to be said; `None` where the engine gave no time.
    pub words: Vec<Option<Span>>,
}

/// A speech engine. Calls block for as long as synthesis takes: not for a runtime's threads.
pub trait SpeechEngine: Send + Sync + 'static {
    /// Name and version, e.g. `flite 2.2`.
    fn name(&self) -> &str;
    /// Short name before the voices, e.g. `flite` in `flite-slt`.
    fn family(&self) -> &'static str;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Pairs of voices for (agent, user) that are easy to tell apart.
    fn pairs(&self) -> &'static [(&'static str, &'static str)];
    /// Says the words in one go.
    ///
    /// # Errors
    /// When the engine is missing, the voice is unknown or no sound comes out.
    fn synthesize(&self, voice: &str, words: &[Say]) -> Result<Utterance, TtsError>;
}
