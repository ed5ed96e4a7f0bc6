//! One row of every slot on the device: no data-dependent branch, no host in between.

use nn::fused::draw;
use nn::{RingCache, RingPlan};
use tch::Tensor;

use super::history::UNKNOWN;
use super::inputs::StepInputs;
use crate::Lm;

/// What one call of [`Lm::feed_row`] leaves on the device.
pub(crate) struct RowOutput {
    /// Values of the next rows, given or sampled, `[B, 17]`; -2 for user codebooks neither given nor sampled.
    pub(crate) next: Tensor,
    /// `[B, 1, dim]`.
    pub(crate) hidden: Tensor,
    /// `[B, V]`.
    pub(crate) text_logits: Tensor,
    /// `[B, V]` for each codebook predicted.
    pub(crate) audio_logits: Vec<Tensor>,
}

impl Lm {
    /// Feeds the rows of `inputs` and decides the next ones with `steps` depformer steps; `len` cached rows are looked at.
    pub(crate) fn feed_row(
        &self,
        inputs: &StepInputs,
        caches: &mut [RingCache],
        len: i64,
        steps: i64,
    ) -> RowOutput {
        let plan = match caches[0].attends() {
            true => RingPlan::of_counts(&inputs.start(), &inputs.taking_part(), len),
            false => RingPlan::new(caches[0].shape(), &inputs.start(), &inputs.active(), 1, len),
        };
        let x = self.embeddings.forward(&inputs.rows().unsqueeze(-1)); // [B, 1, dim]
        let hidden = self.temporal.step(caches, &plan, &x);
        self.decide_row(inputs, &hidden, steps)
    }

    /// Decides the next rows from the hidden states `[B, 1, dim]` of the newest ones.
    pub(crate) fn decide_row(&self, inputs: &StepInputs, hidden: &Tensor, steps: i64) -> RowOutput {
        let given = inputs.next();
        let sampled = given.eq(i64::from(UNKNOWN));
        let used = |stream: i64, drawn: &Tensor| {
            drawn.where_self(&sampled.select(1, stream), &given.select(1, stream))
        };
        let text_logits = self.text_logits(hidden).squeeze_dim(1);
        let (temperature, noise) = inputs.text_draw();
        let text = used(0, &draw(&text_logits, &temperature, &noise));
        let mut audio_logits = Vec::with_capacity(steps as usize);
        let mut next = vec![text.shallow_clone()];
        self.depformer.row(hidden, &text, steps, |s, logits| {
            let (temperature, noise) = inputs.audio_draw(s);
            let code = used(1 + s, &draw(&logits, &temperature, &noise));
            audio_logits.push(logits);
            next.push(code.shallow_clone());
            code
        });
        next.extend((1 + steps..17).map(|stream| given.select(1, stream)));
        let next = Tensor::stack(&next, 1);
        RowOutput { next, hidden: hidden.shallow_clone(), text_logits, audio_logits }
    }
}
