//! Who speaks with which voice: a function of the record's id and nothing else.

use audio::Waveform;
use sha2::{Digest, Sha256};

use crate::engine::SpeechEngine;
use crate::error::TtsError;
use crate::render::{house_clip, whole_milliseconds};
use crate::say::Speech;

/// What a voice says in its reference clip; four to six seconds at the pace of every voice.
pub const REFERENCE_TEXT: &str =
    "Good morning, thank you for calling. I will look into that for you right away.";

/// A number that follows from `purpose` and `id`.
#[must_use]
pub fn stable_number(purpose: &str, id: &str) -> u64 {
    let digest = Sha256::new().chain_update(purpose).chain_update([0]).chain_update(id).finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

/// Voices of one dialogue, as the engine names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cast {
    /// Voice of the agent.
    pub agent: &'static str,
    /// Voice of the user.
    pub user: &'static str,
}

impl Cast {
    /// The voices of record `id`.
    #[must_use]
    pub fn of(id: &str, engine: &dyn SpeechEngine) -> Self {
        let pairs = engine.pairs();
        let place = stable_number("voices", id) % pairs.len().max(1) as u64;
        let (agent, user) = pairs[usize::try_from(place).expect("less than the number of pairs")];
        Self { agent, user }
    }
}

/// Name under which an engine's voice is registered: `flite-slt`.
#[must_use]
pub fn registered_name(engine: &dyn SpeechEngine, voice: &str) -> String {
    format!("{}-{voice}", engine.family())
}

/// Reference clip of a voice, 24 kHz mono: what a session's voice prompt is made from.
///
/// # Errors
/// When the engine fails.
pub fn reference_clip(engine: &dyn SpeechEngine, voice: &str) -> Result<Waveform, TtsError> {
    let speech = Speech::of(REFERENCE_TEXT);
    let clip = house_clip(engine.synthesize(voice, &speech.words)?)?;
    let mut wave = Waveform::mono(domain::frame::SAMPLE_RATE, whole_milliseconds(clip.samples));
    audio::loudness::normalise(&mut wave, audio::loudness::TARGET_LUFS)?;
    Ok(wave)
}
