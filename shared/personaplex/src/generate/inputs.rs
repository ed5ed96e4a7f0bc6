use tch::{Device, Kind, Tensor};

use crate::{Frame, Sampler};

/// Integers of a slot: row fed 17, next row 17, rows seen, active.
const INTS: usize = 36;

/// Tensors that one row of every slot is made from. They stay where they are for the life of a batch and are filled anew
/// for each call, so that a captured graph finds its inputs.
pub(crate) struct StepInputs {
    slots: usize,
    /// Most ids a draw looks at: of the text head, of the audio heads.
    text_k: usize,
    audio_k: usize,
    codebooks: usize,
    host_ints: Vec<i64>,
    host_floats: Vec<f32>,
    /// `[B, 36]` i64.
    ints: Tensor,
    /// `[B, 2 + text_k + codebooks * audio_k]` f32: temperatures of text and audio, then noise.
    floats: Tensor,
}

impl StepInputs {
    pub(crate) fn new(slots: usize, codebooks: usize, text_k: usize, audio_k: usize, device: Device) -> Self {
        let floats = 2 + text_k + codebooks * audio_k;
        let (b, f) = (slots as i64, floats as i64);
        Self {
            slots,
            text_k,
            audio_k,
            codebooks,
            host_ints: vec![0; slots * INTS],
            host_floats: vec![1.0; slots * floats],
            ints: Tensor::zeros([b, INTS as i64], (Kind::Int64, device)),
            floats: Tensor::ones([b, f], (Kind::Float, device)),
        }
    }

    /// Every slot sits out unless [`StepInputs::set`].
    pub(crate) fn clear(&mut self) {
        self.host_ints.fill(0);
    }

    /// A slot's row, what is given of the next row (-2 = sample), rows seen before, and its sampler's draw for row
    /// `seen + 1`.
    pub(crate) fn set(&mut self, slot: usize, row: &Frame, next: &Frame, seen: usize, sampler: &Sampler) {
        let ints = &mut self.host_ints[slot * INTS..(slot + 1) * INTS];
        for (to, from) in ints.iter_mut().zip(row.iter().chain(next)) {
            *to = i64::from(*from);
        }
        ints[34] = seen as i64;
        ints[35] = 1;
        let width = self.host_floats.len() / self.slots;
        let floats = &mut self.host_floats[slot * width..(slot + 1) * width];
        let (temperatures, noise) = floats.split_at_mut(2);
        let (text, audio) = noise.split_at_mut(self.text_k);
        sampler.fill(seen as u64 + 1, temperatures, text, audio, self.audio_k);
    }

    /// Copies the host's values to the device.
    pub(crate) fn upload(&mut self) {
        self.ints.copy_(&Tensor::from_slice(&self.host_ints).view_as(&self.ints));
        self.floats.copy_(&Tensor::from_slice(&self.host_floats).view_as(&self.floats));
    }

    /// Makes every slot on the device sit out, until the next [`StepInputs::upload`].
    pub(crate) fn upload_inactive(&mut self) {
        let _ = self.ints.zero_();
    }

    /// Rows to feed, `[B, 17]`.
    pub(crate) fn rows(&self) -> Tensor {
        self.ints.narrow(1, 0, 17)
    }

    /// Given values of the next rows, -2 where a value is to be sampled, `[B, 17]`.
    pub(crate) fn next(&self) -> Tensor {
        self.ints.narrow(1, 17, 17)
    }

    /// Rows every slot has seen, `[B]`.
    pub(crate) fn start(&self) -> Tensor {
        self.ints.select(1, 34)
    }

    /// Not zero for slots that take part, `[B]`.
    pub(crate) fn taking_part(&self) -> Tensor {
        self.ints.select(1, 35)
    }

    /// Slots that take part, `[B]` bool.
    pub(crate) fn active(&self) -> Tensor {
        self.taking_part().ne(0)
    }

    /// Temperature `[B, 1]` and noise `[B, k]` of the text draw.
    pub(crate) fn text_draw(&self) -> (Tensor, Tensor) {
        (self.floats.narrow(1, 0, 1), self.floats.narrow(1, 2, self.text_k as i64))
    }

    /// Temperature `[B, 1]` and noise `[B, k]` of codebook `s`.
    pub(crate) fn audio_draw(&self, s: i64) -> (Tensor, Tensor) {
        debug_assert!((s as usize) < self.codebooks);
        let from = 2 + self.text_k as i64 + s * self.audio_k as i64;
        (self.floats.narrow(1, 1, 1), self.floats.narrow(1, from, self.audio_k as i64))
    }
}
