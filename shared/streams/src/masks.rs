//! Which frames carry loss (finetune.md 4.1, 4.4).

use crate::delays::is_delay_tail;
use crate::layout::{Frame, TEXT};

/// Per frame: is it a target of the text loss, of the audio loss.
///
/// Prompt frames and frames without content: neither. Context frames: audio only, since the agent has to learn
/// that it is silent there while the tokens themselves are given. Everything else: both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossMask {
    /// Text loss on.
    pub text: Vec<bool>,
    /// Audio loss on (before the acoustic-delay tail, see [`is_audio_target`]).
    pub audio: Vec<bool>,
}

/// Builds the mask of one window.
///
/// `prompt_len` counts the prefix frames of `frames`; `context_mask` may be shorter than `frames` (padding).
#[must_use]
pub fn loss_mask(frames: &[Frame], prompt_len: usize, context_mask: &[bool]) -> LossMask {
    let on = |t: usize, f: &Frame| t >= prompt_len && f.iter().any(|&v| v >= 0);
    let audio: Vec<bool> = frames.iter().enumerate().map(|(t, f)| on(t, f)).collect();
    let text = frames
        .iter()
        .enumerate()
        .map(|(t, f)| audio[t] && f[TEXT] >= 0 && !context_mask.get(t).copied().unwrap_or(false))
        .collect();
    LossMask { text, audio }
}

/// Whether the code of `channel` at frame `t` is a target: it exists and is not lost to the acoustic delay.
#[must_use]
pub fn is_audio_target(channel: usize, frames: &[Frame], t: usize) -> bool {
    frames[t][channel] >= 0 && !is_delay_tail(channel, t, frames.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::EMPTY_FRAME;

    #[test]
    fn prompt_is_off_context_is_audio_only_and_padding_is_off() {
        let frames = [[5; 17], [5; 17], [5; 17], EMPTY_FRAME];
        let mask = loss_mask(&frames, 1, &[false, true, false]);
        assert_eq!(mask.text, [false, false, true, false]);
        assert_eq!(mask.audio, [false, true, true, false]);
    }

    #[test]
    fn the_last_row_of_delayed_codebooks_is_no_target() {
        let frames = [[5; 17]; 3];
        assert!(is_audio_target(1, &frames, 2), "semantic codebook has no delay");
        assert!(!is_audio_target(2, &frames, 2));
        assert!(is_audio_target(2, &frames, 1));
    }
}
