//! The published on-disk shapes: sidecar beside a wav and manifest line (finetune.md 1.5, 1.6).

use serde::{Deserialize, Serialize};

use crate::alignment::{AlignedTurn, AlignedWord};
use crate::dialogue::Speaker;
use crate::injection::Injection;

/// One line of a manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Path of the stereo wav, relative to the manifest's folder.
    pub path: String,
    /// Seconds.
    pub duration: f64,
}

/// A word as published: text, `[start, end]` seconds, label.
pub type SidecarWord = (String, (f64, f64), String);

/// A turn as published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SidecarTurn {
    /// Index in the dialogue record.
    pub index: u32,
    /// Label of the speaker.
    pub speaker: String,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// Text as written.
    pub text: String,
}

/// Indices of words whose times were interpolated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AlignmentFlags {
    /// Indices into `alignments`.
    pub interp: Vec<usize>,
}

/// The JSON beside a stereo wav.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Words of both speakers sorted by start.
    pub alignments: Vec<SidecarWord>,
    /// Turns in order.
    pub turns: Vec<SidecarTurn>,
    /// The brief, without tags.
    pub text_prompt: String,
    /// Voice of the agent: a wav path relative to the sidecar, or a `.pt`.
    pub voice_prompt: Option<String>,
    /// Injections with their frame offsets.
    pub context_injections: Vec<Injection>,
    /// Reserved by the published format.
    #[serde(default)]
    pub text_conditions: Option<serde_json::Value>,
    /// Words with interpolated times.
    #[serde(default)]
    pub alignment_flags: AlignmentFlags,
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a call are far below 2^53")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a call can last"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds.clamp(0.0, 1e9) * 1000.0).round() as u64
}

impl Sidecar {
    /// Writes words and turns in the published form, sorted by start.
    #[must_use]
    pub fn publish(
        mut words: Vec<AlignedWord>,
        turns: &[AlignedTurn],
        text_prompt: String,
        voice_prompt: Option<String>,
        context_injections: Vec<Injection>,
    ) -> Self {
        words.sort_by_key(|w| w.start_ms);
        let interp = words.iter().enumerate().filter(|(_, w)| w.estimated).map(|(i, _)| i).collect();
        Self {
            alignments: words
                .into_iter()
                .map(|w| {
                    (w.word, (seconds(w.start_ms), seconds(w.end_ms)), w.speaker.published_label().into())
                })
                .collect(),
            turns: turns
                .iter()
                .map(|t| SidecarTurn {
                    index: t.index,
                    speaker: t.speaker.published_label().into(),
                    start: seconds(t.start_ms),
                    end: seconds(t.end_ms),
                    text: t.text.clone(),
                })
                .collect(),
            text_prompt,
            voice_prompt,
            context_injections,
            text_conditions: None,
            alignment_flags: AlignmentFlags { interp },
        }
    }

    /// The words with integer times; `main_label` marks the agent's.
    #[must_use]
    pub fn words(&self, main_label: &str) -> Vec<AlignedWord> {
        self.alignments
            .iter()
            .enumerate()
            .map(|(i, (word, (start, end), label))| AlignedWord {
                word: word.clone(),
                start_ms: milliseconds(*start),
                end_ms: milliseconds(*end),
                speaker: if label == main_label { Speaker::Agent } else { Speaker::User },
                estimated: self.alignment_flags.interp.contains(&i),
            })
            .collect()
    }
}
