//! Free-running generation after the prompts of windows.

use domain::frame::FRAME_RATE;
use domain::run::ProbeSpec;
use personaplex::{BatchOptions, Given, Lm, LmBatch, Order, Prompt, Sampler, Sampling};
use streams::tokens::{EPAD, PAD};
use tch::Tensor;

use crate::TrainError;
use crate::loader::Sample;

/// What the model said after one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether the prompt was that of a dialogue's beginning.
    pub begins: bool,
    /// Text ids, one a frame.
    pub text: Vec<i32>,
    /// Agent codes.
    pub codes: Vec<[i32; 8]>,
}

impl Said {
    /// Text ids without padding.
    pub(super) fn spoken(&self) -> Vec<i32> {
        self.text.iter().copied().filter(is_text).collect()
    }

    /// Frame of the first text.
    pub(super) fn first_word(&self) -> Option<usize> {
        self.text.iter().position(is_text)
    }
}

fn is_text(id: &i32) -> bool {
    ![PAD, EPAD].contains(id)
}

/// How the model is let talk.
pub(super) struct Talk<'a> {
    pub spec: &'a ProbeSpec,
    /// Seed of the run.
    pub seed: u64,
    /// User codes where nothing was recorded.
    pub silence: [i32; 8],
}

impl Talk<'_> {
    /// What is said after the prompts of `samples`, at most `slots` at a time; none when a number was not finite. No
    /// gradients, and nothing of it stays on the device.
    pub(super) fn all(
        &self,
        lm: &Lm,
        samples: &[&Sample],
        slots: usize,
    ) -> Result<Option<Vec<Said>>, TrainError> {
        let mut said = Vec::with_capacity(samples.len());
        for (group, samples) in samples.chunks(slots.max(1)).enumerate() {
            let Some(some) = tch::no_grad(|| self.group(lm, samples, group * slots))? else {
                return Ok(None);
            };
            said.extend(some);
        }
        Ok(Some(said))
    }

    /// One batch, whose first prompt has number `first`.
    fn group(&self, lm: &Lm, samples: &[&Sample], first: usize) -> Result<Option<Vec<Said>>, TrainError> {
        let mut batch = LmBatch::new(lm, samples.len(), BatchOptions::default())?;
        for (slot, sample) in samples.iter().enumerate() {
            let prefix = lm.prefill(&prompt(lm, sample), Order::default())?;
            if prefix.hidden().is_some_and(|hidden| !finite(hidden)) {
                return Ok(None);
            }
            lm.open(&mut batch, slot, &prefix, self.sampler(first + slot))?;
        }
        let nothing = |s: &&Sample| Said { begins: s.window.index == 0, text: Vec::new(), codes: Vec::new() };
        let mut said: Vec<Said> = samples.iter().map(nothing).collect();
        for frame in 0..self.frames() {
            let given = |s: &&Sample| Given { user: Some(self.user(s, frame)), ..Given::default() };
            let given: Vec<Option<Given>> = samples.iter().map(|s| Some(given(s))).collect();
            let emitted = lm.step(&mut batch, &given)?;
            let audio = batch.audio_logits();
            if !batch.text_logits().into_iter().chain(&audio).all(finite) {
                return Ok(None);
            }
            for (said, emitted) in said.iter_mut().zip(emitted.into_iter().flatten()) {
                said.text.push(emitted.frame[0]);
                said.codes.push(std::array::from_fn(|k| emitted.frame[1 + k]));
            }
        }
        Ok(Some(said))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 120 s, checked by the specification"
    )]
    fn frames(&self) -> usize {
        (self.spec.seconds * FRAME_RATE).round() as usize
    }

    /// Depends on the run's seed and the prompt's number, not on how many share a batch.
    fn sampler(&self, number: usize) -> Sampler {
        let sampling = Sampling {
            text_temperature: self.spec.temp_text,
            audio_temperature: self.spec.temp_audio,
            ..Sampling::default()
        };
        // An odd factor keeps the prompts of neighbouring seeds apart.
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64);
        Sampler::new(sampling, seed)
    }

    /// The recorded user, silent after the end of the window.
    fn user(&self, sample: &Sample, frame: usize) -> [i32; 8] {
        let window = &sample.window;
        let Some(row) = window.frames.get(window.prompt_len + frame) else { return self.silence };
        let codes: [i32; 8] = std::array::from_fn(|k| row[9 + k]);
        if codes.iter().all(|c| *c >= 0) { codes } else { self.silence }
    }
}

/// The prompt of a window; one that fills what the model remembers loses its beginning.
fn prompt(lm: &Lm, sample: &Sample) -> Prompt {
    let frames = &sample.window.frames[..sample.window.prompt_len];
    let room = usize::try_from(lm.config().context).unwrap_or(usize::MAX).saturating_sub(1);
    Prompt::of_frames(frames[frames.len().saturating_sub(room)..].to_vec())
}

fn finite(values: &Tensor) -> bool {
    values.isfinite().all().int64_value(&[]) != 0
}
