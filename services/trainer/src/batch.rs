//! Windows to tensors, in an order that is a function of seed and step.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use streams::layout::EMPTY_FRAME;
use tch::{Device, Kind, Tensor};

use crate::loader::Sample;

/// One micro-batch.
#[derive(Debug)]
pub struct Batch {
    /// `[B, 17, T]` i64, un-delayed, padded with -1.
    pub codes: Tensor,
    /// Prompt frames of each row.
    pub prompt_lengths: Vec<i64>,
    /// `[B, T]` boolean: context frames.
    pub context_mask: Tensor,
    /// Frames that are not padding.
    pub frames: usize,
    /// Dialogue and window of each row, for messages.
    pub names: String,
}

impl Batch {
    /// Pads the samples to the longest of them.
    #[must_use]
    pub fn collate(samples: &[&Sample], device: Device) -> Self {
        let t = samples.iter().map(|s| s.window.frames.len()).max().unwrap_or(0);
        let b = samples.len();
        let mut codes = Vec::with_capacity(b * 17 * t);
        let mut mask = Vec::with_capacity(b * t);
        for sample in samples {
            for channel in 0..17 {
                codes.extend(
                    (0..t).map(|i| i64::from(sample.window.frames.get(i).unwrap_or(&EMPTY_FRAME)[channel])),
                );
            }
            mask.extend((0..t).map(|i| sample.window.context_mask.get(i).copied().unwrap_or(false)));
        }
        let (b, t) = (i64::try_from(b).expect("small"), i64::try_from(t).expect("small"));
        Self {
            codes: Tensor::from_slice(&codes).view([b, 17, t]).to_device(device),
            prompt_lengths: samples
                .iter()
                .map(|s| i64::try_from(s.window.prompt_len).expect("small"))
                .collect(),
            context_mask: Tensor::from_slice(&mask).view([b, t]).to_kind(Kind::Bool).to_device(device),
            frames: samples.iter().map(|s| s.window.valid_frames).sum(),
            names: samples
                .iter()
                .map(|s| format!("{}#{}", s.dialogue, s.window.index))
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

/// Sample numbers of the `count` windows that follow the first `start` ones: every epoch is one permutation.
#[must_use]
pub fn order(seed: u64, samples: usize, start: u64, count: usize) -> Vec<usize> {
    let samples_u64 = samples as u64;
    let mut picked = Vec::with_capacity(count);
    let mut current: Option<(u64, Vec<usize>)> = None;
    for i in start..start + count as u64 {
        let (epoch, place) = (i / samples_u64, i % samples_u64);
        if current.as_ref().is_none_or(|(e, _)| *e != epoch) {
            let mut permutation: Vec<usize> = (0..samples).collect();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(epoch);
            permutation.shuffle(&mut rng);
            current = Some((epoch, permutation));
        }
        if let Some((_, permutation)) = &current {
            picked.push(permutation[usize::try_from(place).expect("below the number of samples")]);
        }
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_sees_every_window_once_and_a_resumed_order_is_the_same_order() {
        let whole = order(7, 5, 0, 15);
        for epoch in whole.chunks(5) {
            let mut seen = epoch.to_vec();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        }
        assert_ne!(whole[..5], whole[5..10], "epochs differ");
        let parts: Vec<usize> = (0..5).flat_map(|i| order(7, 5, i * 3, 3)).collect();
        assert_eq!(parts, whole);
    }
}
