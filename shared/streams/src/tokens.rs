//! Ids with a meaning of their own, and the codes of the prompt's silence and marker tone.

use serde::{Deserialize, Serialize};

use crate::layout::Codes;

/// Text: nothing is said in this frame.
pub const PAD: i32 = 3;
/// Text: the frame before a word that follows padding.
pub const EPAD: i32 = 0;
/// Text: the main speaker begins (only with `use_bos_eos`).
pub const BOS: i32 = 1;
/// Text: the main speaker stops (only with `use_bos_eos`).
pub const EOS: i32 = 2;
/// Any channel: embeds to exactly zero, no loss.
pub const ZERO: i32 = -1;
/// Any channel: not decided yet; must never reach an embedding or a dataset.
pub const UNGENERATED: i32 = -2;
/// Text value of the row before the first frame.
pub const TEXT_INITIAL: i32 = 32_000;
/// Audio value of the rows before a codebook's first frame.
pub const AUDIO_INITIAL: i32 = 2_048;
/// Codes of one codebook are `0..AUDIO_CARD`.
pub const AUDIO_CARD: i32 = 2_048;

/// Whether a text id says nothing: PAD or EPAD.
#[must_use]
pub const fn is_padding(text: i32) -> bool {
    text == PAD || text == EPAD
}

/// Codes that stand for agent silence and for the user's marker tone (440 Hz) during the prompt.
///
/// The defaults belong to the published codec; with any other codec they must be recomputed by encoding silence
/// and the tone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptCodes {
    /// One frame of digital silence.
    pub silence: Codes,
    /// One frame of the 440 Hz tone.
    pub sine: Codes,
}

impl Default for PromptCodes {
    fn default() -> Self {
        Self {
            silence: [948, 243, 1178, 546, 1736, 1030, 1978, 2008],
            sine: [430, 1268, 381, 1611, 1095, 1495, 56, 472],
        }
    }
}
