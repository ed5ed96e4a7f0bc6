use tch::Tensor;

use super::{Lm, ZERO, delays};
use crate::PersonaplexError;

/// Logits aligned with the frames they predict, and where they may be used.
#[derive(Debug)]
pub struct TrainOutput {
    /// `[B, T, V]`.
    pub text_logits: Tensor,
    /// `[B, 16, T, V]`; zero where nothing predicts the frame (the tail of delayed codebooks).
    pub audio_logits: Tensor,
    /// `[B, T]` boolean: a text target is there.
    pub text_mask: Tensor,
    /// `[B, 16, T]` boolean: an audio target is there and predicted.
    pub audio_mask: Tensor,
}

impl Lm {
    /// Full forward with teacher forcing (personaplex.md 1.5). `codes` `[B, 17, T]` i64, frame-aligned, -1 = absent:
    /// a zero vector as input, masked as target. Differentiable in what is trained when gradients are on.
    pub fn forward_train(&self, codes: &Tensor) -> Result<TrainOutput, PersonaplexError> {
        let (b, t) = self.check_codes(codes)?;
        let _span = tracing::debug_span!("lm.forward_train", batch = b, frames = t).entered();
        let codes = codes.to_device(self.device).to_kind(tch::Kind::Int64);
        let (rows, hidden) = self.rows_and_hidden(&codes)?;
        let text_logits = self.text_logits(&hidden);
        let targets = rows.narrow(2, 1, t).transpose(1, 2).reshape([b * t, -1]); // [B*T, 17]
        let audio = self.depformer.forward_all(&hidden.reshape([b * t, self.config.dim]), &targets);
        let audio = audio.view([self.config.dep_q, b, t, -1]).transpose(0, 1); // [B, S, T, V]
        let masks = self.target_masks(&codes);
        let audio_logits = delays::to_frames(&audio, self.audio_delays());
        Ok(TrainOutput { text_logits, audio_logits, text_mask: masks.0, audio_mask: masks.1 })
    }

    /// Hidden states after the final norm of a whole sequence, `[B, 17, T] -> [B, T, dim]`: position p has seen rows 0 to
    /// p and predicts row p + 1.
    pub fn hidden_states(&self, codes: &Tensor) -> Result<Tensor, PersonaplexError> {
        self.check_codes(codes)?;
        let codes = codes.to_device(self.device).to_kind(tch::Kind::Int64);
        Ok(self.rows_and_hidden(&codes)?.1)
    }

    /// Model rows `[B, 17, T + 1]` and the hidden states of all but the last.
    fn rows_and_hidden(&self, codes: &Tensor) -> Result<(Tensor, Tensor), PersonaplexError> {
        let rows = delays::to_rows(codes, &self.config.delays, &self.initial_ids());
        let x = self.embeddings.forward(&rows.narrow(2, 0, codes.size()[2]));
        let hidden = self.temporal.forward(&x, |_, _| ())?;
        if hidden.requires_grad() {
            // The graph would hold weights that have been overwritten since.
            self.refuse_streamed("a differentiable pass over all layers at once")?;
        }
        Ok((rows, hidden))
    }

    /// Where `codes` `[B, 17, T]` hold targets: text `[B, T]` and audio `[B, 16, T]`.
    pub fn target_masks(&self, codes: &Tensor) -> (Tensor, Tensor) {
        target_masks(codes, self.audio_delays())
    }

    pub(super) fn audio_delays(&self) -> &[i64] {
        &self.config.delays[1..=self.config.dep_q as usize]
    }

    /// Initial id of every stream.
    pub(crate) fn initial_ids(&self) -> Vec<i64> {
        let mut ids = vec![self.config.card; self.config.streams()];
        ids[0] = self.config.text_card;
        ids
    }

    pub(super) fn check_codes(&self, codes: &Tensor) -> Result<(i64, i64), PersonaplexError> {
        let size = codes.size();
        let streams = self.config.streams() as i64;
        if size.len() != 3 || size[1] != streams || size[0] < 1 || size[2] < 1 {
            return Err(PersonaplexError::Shape {
                what: "codes",
                wanted: format!("[B, {streams}, T]"),
                found: size,
            });
        }
        // The initial id is a legal input of the tables but never a target.
        let text = codes.select(1, 0);
        let audio = codes.narrow(1, 1, streams - 1);
        for (what, x, high) in [("text", text, self.config.text_card), ("audio", audio, self.config.card)] {
            let (low, top) = (x.min().int64_value(&[]), x.max().int64_value(&[]));
            if low < i64::from(ZERO) || top >= high {
                let value = if top >= high { top } else { low };
                return Err(PersonaplexError::IdRange { what, value, low: i64::from(ZERO), high });
            }
        }
        Ok((size[0], size[2]))
    }
}

/// See [`Lm::target_masks`]; `delays` are those of the audio streams.
pub(crate) fn target_masks(codes: &Tensor, delays: &[i64]) -> (Tensor, Tensor) {
    let present = codes.ne(i64::from(ZERO)); // [B, 17, T]
    let t = codes.size()[2];
    let audio = present.narrow(1, 1, delays.len() as i64);
    let audio = audio.logical_and(&delays::predicted(t, delays, codes.device()).unsqueeze(0));
    (present.select(1, 0), audio)
}
