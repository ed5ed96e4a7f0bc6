//! Words with times.

use serde::{Deserialize, Serialize};

use crate::dialogue::Speaker;

/// A script word with its time in integer milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignedWord {
    /// The word as written in the script.
    pub word: String,
    /// Start from the beginning of the audio, ms.
    pub start_ms: u64,
    /// End, ms; at least `start_ms`.
    pub end_ms: u64,
    /// Who says it.
    pub speaker: Speaker,
    /// True when the time was interpolated instead of measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// A turn with its span of audio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignedTurn {
    /// Index of the turn in the dialogue record.
    pub index: u32,
    /// Who speaks.
    pub speaker: Speaker,
    /// Start of the first word, ms.
    pub start_ms: u64,
    /// End of the last word, ms.
    pub end_ms: u64,
    /// The turn's text as in the record.
    pub text: String,
}
