use tch::Tensor;

use super::LossWeights;

/// Targets of both heads with their weights, laid out as the logits they are held against.
pub(crate) struct Targets {
    /// `[..]` ids, f32 weights, boolean: counts in the diagnostics.
    pub(super) text: [Tensor; 3],
    /// `[.., K, ..]` likewise.
    pub(super) audio: [Tensor; 3],
    pub(super) pad: i64,
}

impl Targets {
    /// By frame: text `[B, T]`, audio `[B, K, T]`.
    pub(super) fn by_frame(codes: &Tensor, weights: &LossWeights) -> Self {
        let device = codes.device();
        let k = weights.audio.size()[1];
        let on = |t: &Tensor| t.to_device(device);
        Self {
            text: [codes.select(1, 0), on(&weights.text), on(&weights.text_counted)],
            audio: [codes.narrow(1, 1, k), on(&weights.audio), on(&weights.audio_counted)],
            pad: weights.pad,
        }
    }

    /// By the row that predicts them, flattened over batch and rows: text `[N]`, audio `[K, N]`. Position p of a row
    /// predicts text of frame p and of a codebook the frame p - delay.
    pub(crate) fn by_row(codes: &Tensor, weights: &LossWeights, delays: &[i64]) -> Self {
        let frames = Self::by_frame(codes, weights);
        let t = codes.size()[2];
        let flat = |x: &Tensor| {
            let streams: Vec<Tensor> = delays
                .iter()
                .enumerate()
                .map(|(k, &delay)| {
                    let delay = delay.min(t);
                    x.select(1, k as i64).narrow(1, 0, t - delay).constant_pad_nd([delay, 0]).reshape([-1])
                })
                .collect();
            Tensor::stack(&streams, 0)
        };
        Self {
            text: frames.text.map(|x| x.reshape([-1])),
            audio: [flat(&frames.audio[0]), flat(&frames.audio[1]), flat(&frames.audio[2])],
            pad: frames.pad,
        }
    }

    /// `n` rows from `from` on, of targets by row.
    pub(crate) fn slice(&self, from: i64, n: i64) -> Self {
        let part = |x: &Tensor| x.narrow(-1, from, n);
        Self {
            text: [part(&self.text[0]), part(&self.text[1]), part(&self.text[2])],
            audio: [part(&self.audio[0]), part(&self.audio[1]), part(&self.audio[2])],
            pad: self.pad,
        }
    }

    /// Where the diagnostics count text, `[..]` boolean.
    pub(crate) fn text_counted(&self) -> &Tensor {
        &self.text[2]
    }
}
