//! Windows to tensors.

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
    /// Rows that hold context.
    pub context_rows: usize,
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
            context_rows: samples.iter().filter(|s| s.has_context()).count(),
        }
    }
}
