//! Whether the codes that stand for silence and for the 440 Hz tone in prompts fit the loaded codec.

use std::f64::consts::TAU;

use super::Mimi;
use crate::PersonaplexError;

/// Hz of the tone that stands for the user in prompts, and its amplitude.
const TONE: (f64, f64) = (440.0, 0.5);

/// Codes configured for a signal, and what the codec gives for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantCheck {
    pub configured: [i32; 8],
    /// The steady frame that differs least from the configured one: those of the second half of a second, when the
    /// start of the stream has left the convolutions. A tone does not fit a frame a whole number of times, so its
    /// steady frames may differ among themselves.
    pub found: [i32; 8],
}

/// Outcome of [`Mimi::check_constants`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstantsReport {
    pub silence: ConstantCheck,
    pub sine: ConstantCheck,
}

impl ConstantCheck {
    fn new(configured: [i32; 8], frames: &[[i32; 8]]) -> Self {
        let differing = |frame: &&[i32; 8]| frame.iter().zip(configured).filter(|(a, b)| **a != *b).count();
        let found = *frames[frames.len() / 2..].iter().min_by_key(differing).expect("a second has frames");
        Self { configured, found }
    }

    /// Codebooks whose code differs.
    pub fn differing(&self) -> Vec<usize> {
        (0..8).filter(|k| self.configured[*k] != self.found[*k]).collect()
    }
}

impl ConstantsReport {
    pub fn matches(&self) -> bool {
        self.differing().is_empty()
    }

    /// The signals that do not match, with their names.
    pub fn differing(&self) -> Vec<(&'static str, &ConstantCheck)> {
        let all = [("silence", &self.silence), ("sine", &self.sine)];
        all.into_iter().filter(|(_, check)| check.configured != check.found).collect()
    }

    /// Logs a warning with both lists for every signal that does not match.
    pub fn warn(&self) {
        for (signal, check) in self.differing() {
            tracing::warn!(
                signal,
                configured = ?check.configured,
                found = ?check.found,
                "the codec gives other codes for {signal} than prompts use; they belong to another codec"
            );
        }
    }
}

impl Mimi {
    /// Encodes a second of digital silence and of a 440 Hz tone of amplitude 0.5 and compares with the codes that
    /// prompts use for them (personaplex.md 2.1). Codes that differ mean that the codec is not the one the constants
    /// were made with; random weights never match. Costs about 25 frames of encoding, once per load.
    ///
    /// # Errors
    /// When the codec has fewer than 8 codebooks.
    pub fn check_constants(
        &self,
        silence: &[i32; 8],
        sine: &[i32; 8],
    ) -> Result<ConstantsReport, PersonaplexError> {
        let rate = self.config.sample_rate;
        // Whole frames only: the rest would be filled up with zeros, which is no tone.
        let samples = (rate as usize / self.frame_size()).max(2) * self.frame_size();
        let tone = |i| (TONE.1 * (TAU * TONE.0 * i as f64 / rate as f64).sin()) as f32;
        let tone: Vec<f32> = (0..samples).map(tone).collect();
        Ok(ConstantsReport {
            silence: ConstantCheck::new(*silence, &self.encode(&vec![0.0; samples])?),
            sine: ConstantCheck::new(*sine, &self.encode(&tone)?),
        })
    }
}
