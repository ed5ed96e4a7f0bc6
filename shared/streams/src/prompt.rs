//! The system prompt as frames: voice, silence, text, silence (finetune.md 3.4, personaplex.md 2.2).

use crate::layout::{Codes, Frame, frame};
use crate::tokens::{PAD, PromptCodes};

/// Silent frames before and after the text: half a second at 12.5 Hz, rounded down.
pub const SILENCE_FRAMES: usize = 6;

/// What conditions the model before the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPrompt {
    /// Codes of the voice clip, one entry a frame; empty for no voice.
    pub voice: Vec<Codes>,
    /// Tokens of the wrapped prompt text; empty for no text.
    pub tokens: Vec<i32>,
    /// Length of each of the two silences, frames.
    pub silence_frames: usize,
}

impl SystemPrompt {
    /// A prompt with the usual silences.
    #[must_use]
    pub fn new(voice: Vec<Codes>, tokens: Vec<i32>) -> Self {
        Self { voice, tokens, silence_frames: SILENCE_FRAMES }
    }

    /// Whether there is neither voice nor text, and so no prefix at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.voice.is_empty() && self.tokens.is_empty()
    }

    /// Frames of the prefix.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.is_empty() { 0 } else { self.voice.len() + 2 * self.silence_frames + self.tokens.len() }
    }

    /// The prefix itself; the user side carries the marker tone throughout.
    #[must_use]
    pub fn frames(&self, codes: &PromptCodes) -> Vec<Frame> {
        if self.is_empty() {
            return Vec::new();
        }
        let voice = self.voice.iter().map(|v| frame(PAD, v, &codes.sine));
        voice.chain(self.after_voice(codes)).collect()
    }

    /// The part after the voice, for a voice that is not there as codes: silence, text, silence, also without text.
    #[must_use]
    pub fn after_voice(&self, codes: &PromptCodes) -> Vec<Frame> {
        let silence = std::iter::repeat_n(frame(PAD, &codes.silence, &codes.sine), self.silence_frames);
        let text = self.tokens.iter().map(|&t| frame(t, &codes.silence, &codes.sine));
        silence.clone().chain(text).chain(silence).collect()
    }
}
