//! Words with times become text tokens on the frame grid (finetune.md 3.2).
//!
//! Product code gives integer milliseconds; [`lay_out_seconds`] repeats the published f64 arithmetic for parity.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::error::StreamsError;
use crate::tokenizer::Tokenizer;
use crate::tokens::{BOS, EOS, EPAD, PAD, ZERO};

/// Share of lost tokens above which a dialogue deserves a look.
pub const WARN_DROPPED_SHARE: f64 = 0.02;
/// Share of lost tokens above which a dialogue should not be trained on.
pub const FAIL_DROPPED_SHARE: f64 = 0.10;
/// Longest lag of a word's first token with [`Overflow::ShiftBounded`], frames.
pub const MAX_SHIFT_FRAMES: usize = 12;
const MS_PER_FRAME: i64 = 80;
const FRAMES_PER_SECOND: f64 = 12.5;

/// A word to lay out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// As written in the script.
    pub text: String,
    /// Start, ms from frame 0; may be negative.
    pub start_ms: i64,
    /// End, ms.
    pub end_ms: i64,
    /// Whether the main speaker (the agent) says it.
    pub is_main: bool,
}

/// What happens to tokens of a word that are still unspoken when the next word starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// They are lost.
    #[default]
    Drop,
    /// The next word waits for them.
    Shift,
    /// The next word waits at most [`MAX_SHIFT_FRAMES`]; what is beyond is lost.
    ShiftBounded,
}

/// How the text stream is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextStreamConfig {
    /// Leave out words of the other speaker.
    pub keep_main_only: bool,
    /// Mark changes of speaker with BOS and EOS (only useful with both speakers).
    pub use_bos_eos: bool,
    /// Positive: text comes this much earlier than the audio, so that the model speaks what it has already written, and
    /// words that end before the delay are gone. Negative: text comes later (it transcribes), and the first frames are
    /// [`ZERO`](crate::tokens::ZERO): nothing is known there, nothing is trained.
    pub audio_delay_ms: i64,
    /// Filler inside a word after its tokens ran out.
    pub in_word_padding: i32,
    /// See [`Overflow`].
    pub overflow: Overflow,
}

impl Default for TextStreamConfig {
    fn default() -> Self {
        Self {
            keep_main_only: true,
            use_bos_eos: false,
            audio_delay_ms: 0,
            in_word_padding: PAD,
            overflow: Overflow::default(),
        }
    }
}

/// What was laid out and what was lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextStreamStats {
    /// Words that were laid out.
    pub words: usize,
    /// Words left out because they end before they start or before the delay.
    pub words_dropped: usize,
    /// Tokens of the words laid out.
    pub tokens: usize,
    /// Tokens that found no frame.
    pub tokens_dropped: usize,
}

impl TextStreamStats {
    /// Share of tokens that found no frame, 0..=1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "token counts of a call are far below 2^53")]
    pub fn dropped_share(&self) -> f64 {
        if self.tokens == 0 { 0.0 } else { self.tokens_dropped as f64 / self.tokens as f64 }
    }
}

/// What a share of lost tokens means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// At most [`WARN_DROPPED_SHARE`].
    Ok,
    /// Above it.
    Warn,
    /// Above [`FAIL_DROPPED_SHARE`].
    Fail,
}

impl TextStreamStats {
    /// Judges [`Self::dropped_share`].
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.dropped_share() {
            share if share > FAIL_DROPPED_SHARE => Severity::Fail,
            share if share > WARN_DROPPED_SHARE => Severity::Warn,
            _ => Severity::Ok,
        }
    }
}

/// The text channel of a stretch of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextStream {
    /// One id a frame.
    pub tokens: Vec<i32>,
    /// Counts for reports.
    pub stats: TextStreamStats,
}

struct PlacedWord {
    start_frame: i64,
    end_frame: i64,
    tokens: Vec<i32>,
}

/// Lays out `words` on `frames` frames; words may come in any order.
///
/// # Errors
/// When a word cannot be tokenized.
pub fn lay_out(
    words: &[Word],
    frames: usize,
    tokenizer: &Tokenizer,
    config: &TextStreamConfig,
) -> Result<TextStream, StreamsError> {
    let mut sorted: Vec<&Word> = words.iter().collect();
    sorted.sort_by_key(|w| w.start_ms);
    let mut stats = TextStreamStats::default();
    let mut placed = Vec::new();
    let mut speakers = SpeakerChanges::default();
    for word in sorted {
        let Some(marker) = speakers.marker(word.is_main, config) else { continue };
        let delay = config.audio_delay_ms;
        if word.start_ms >= word.end_ms || (delay != 0 && word.end_ms <= delay) {
            stats.words_dropped += 1;
            continue;
        }
        placed.push(PlacedWord {
            start_frame: (word.start_ms - delay).div_euclid(MS_PER_FRAME),
            end_frame: (word.end_ms - delay) / MS_PER_FRAME,
            tokens: with_marker(marker, tokenizer.word_tokens(&word.text)?),
        });
    }
    let late = if config.audio_delay_ms < 0 { -config.audio_delay_ms / MS_PER_FRAME } else { 0 };
    Ok(fill(&placed, frames, late, config, stats))
}

/// The published f64 arithmetic: times in seconds, `ceil(seconds * 12.5)` frames, -1 without any alignment.
///
/// For comparison with reference data; product code calls [`lay_out`].
///
/// # Errors
/// When a word cannot be tokenized.
#[expect(clippy::cast_possible_truncation, reason = "the reference truncates frame numbers the same way")]
pub fn lay_out_seconds(
    words: Option<&[(String, f64, f64, bool)]>,
    seconds: f64,
    audio_delay: f64,
    tokenizer: &Tokenizer,
    config: &TextStreamConfig,
) -> Result<TextStream, StreamsError> {
    let frames = usize::try_from((seconds * FRAMES_PER_SECOND).ceil() as i64).unwrap_or(0);
    let mut stats = TextStreamStats::default();
    let Some(words) = words else {
        return Ok(TextStream { tokens: vec![ZERO; frames], stats });
    };
    let mut sorted: Vec<_> = words.iter().collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut placed = Vec::new();
    let mut speakers = SpeakerChanges::default();
    for (text, start, end, is_main) in sorted {
        let Some(marker) = speakers.marker(*is_main, config) else { continue };
        if start >= end || (audio_delay != 0.0 && *end <= audio_delay) {
            stats.words_dropped += 1;
            continue;
        }
        placed.push(PlacedWord {
            start_frame: ((start - audio_delay) * FRAMES_PER_SECOND).floor() as i64,
            end_frame: ((end - audio_delay) * FRAMES_PER_SECOND).trunc() as i64,
            tokens: with_marker(marker, tokenizer.word_tokens(text)?),
        });
    }
    let late = if audio_delay < 0.0 { (FRAMES_PER_SECOND * audio_delay.abs()) as i64 } else { 0 };
    Ok(fill(&placed, frames, late, config, stats))
}

#[derive(Default)]
struct SpeakerChanges {
    last_is_main: Option<bool>,
}

impl SpeakerChanges {
    /// None: the word is left out. Some(marker): it stays, led by the marker if there is one.
    fn marker(&mut self, is_main: bool, config: &TextStreamConfig) -> Option<Option<i32>> {
        if config.keep_main_only {
            return is_main.then_some(None);
        }
        let changed = self.last_is_main != Some(is_main);
        let first = self.last_is_main.replace(is_main).is_none();
        Some(match (config.use_bos_eos && changed, is_main) {
            (true, true) => Some(BOS),
            (true, false) if !first => Some(EOS),
            _ => None,
        })
    }
}

fn with_marker(marker: Option<i32>, tokens: Vec<i32>) -> Vec<i32> {
    marker.into_iter().chain(tokens).collect()
}

fn fill(
    words: &[PlacedWord],
    frames: usize,
    late_frames: i64,
    config: &TextStreamConfig,
    mut stats: TextStreamStats,
) -> TextStream {
    stats.words = words.len();
    stats.tokens = words.iter().map(|w| w.tokens.len()).sum();
    let mut text = vec![PAD; frames];
    let mut queue: VecDeque<i32> = VecDeque::new();
    let (mut next, mut last_end, mut spoken) = (0, -1, 0);
    for (frame_number, t) in (0i64..).zip(0..frames) {
        while let Some(word) = words.get(next).filter(|w| w.start_frame <= frame_number) {
            match config.overflow {
                Overflow::Drop => queue.clear(),
                Overflow::Shift => {}
                Overflow::ShiftBounded => queue.truncate(MAX_SHIFT_FRAMES),
            }
            queue.extend(&word.tokens);
            last_end = word.end_frame;
            next += 1;
        }
        if let Some(token) = queue.pop_front() {
            if t > 0 && (text[t - 1] == PAD || text[t - 1] == config.in_word_padding) {
                text[t - 1] = EPAD;
            }
            text[t] = token;
            spoken += 1;
        } else if frame_number <= last_end {
            text[t] = config.in_word_padding;
        }
    }
    let late = usize::try_from(late_frames).unwrap_or(0).min(frames);
    text[..late].fill(ZERO);
    stats.tokens_dropped = stats.tokens - spoken;
    TextStream { tokens: text, stats }
}
