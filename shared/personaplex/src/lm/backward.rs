//! A training pass that never holds the whole graph: temporal layers are recomputed one by one on the way back, the heads
//! see their rows in slices (finetune.md 4.2, 6.4). Loss and gradients equal those of the plain pass.

use tch::{Kind, Tensor};

use super::{Lm, delays};
use crate::PersonaplexError;
use crate::lora::Trained;
use crate::loss::{LossMetrics, LossWeights, Targets, target_loss};

/// How a training pass trades memory for time, and what it adds to the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassOptions {
    /// Temporal layers whose inner values are computed a second time instead of kept, from the first on. Keeping a layer
    /// costs about 0.3 MB a frame for the 7B in bf16.
    pub recompute_layers: usize,
    /// Rows that the text head and the depformer see at a time.
    pub slice_rows: i64,
    /// Weight of the divergence of the text distribution from that of the model without adapters.
    pub kl_base_weight: f64,
    /// Uniform noise on the input vectors, +-alpha / sqrt(T * dim).
    pub neftune_alpha: f64,
}

impl Default for PassOptions {
    fn default() -> Self {
        Self { recompute_layers: usize::MAX, slice_rows: 256, kl_base_weight: 0.0, neftune_alpha: 0.0 }
    }
}

/// What a pass found. Sums are weighted; divide by the weights of the whole optimiser step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassSums {
    pub text_sum: f64,
    pub text_weight: f64,
    pub audio_sum: f64,
    pub audio_weight: f64,
    /// Divergence from the base summed over counted text frames, nats; zero unless asked for.
    pub kl_sum: f64,
    pub metrics: LossMetrics,
}

/// Factors that turn sums into the part of the total loss that is differentiated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    /// Text loss weight over the text weights of the whole optimiser step; zero when that sum is zero.
    pub text: f64,
    pub audio: f64,
    /// One over the counted text frames of the whole optimiser step.
    pub kl: f64,
}

impl Lm {
    /// Forward and backward of one micro-batch; gradients are added to those of [`Lm::trainable`].
    ///
    /// # Errors
    /// As [`Lm::forward_train`]; when streamed layers shall be kept; when there is no base to diverge from; what the
    /// source of streamed layers reports, with some gradients added already.
    pub fn backward(
        &self,
        codes: &Tensor,
        weights: &LossWeights,
        scale: LossScale,
        options: &PassOptions,
    ) -> Result<PassSums, PersonaplexError> {
        let (b, t) = self.check_codes(codes)?;
        let _span = tracing::debug_span!("lm.backward", batch = b, frames = t).entered();
        let codes = codes.to_device(self.device).to_kind(Kind::Int64);
        let rows = delays::to_rows(&codes, &self.config.delays, &self.initial_ids());
        let layers = self.temporal.layers.len();
        let recomputed = options.recompute_layers.min(layers);
        if recomputed < layers {
            self.refuse_streamed("keeping the values of a layer")?;
        }
        let base = (options.kl_base_weight > 0.0).then(|| self.base_hidden(&rows)).transpose()?;
        let input = self.noisy_input(&rows, options.neftune_alpha);
        let trained_input = input.requires_grad();
        let whole = self.temporal.whole(t, self.device);
        let mut x = input.shallow_clone();
        let mut inputs = Vec::with_capacity(recomputed);
        tch::no_grad(|| -> Result<(), PersonaplexError> {
            x = x.detach();
            for l in 0..recomputed {
                inputs.push(x.shallow_clone());
                x = self.temporal.layer(l)?.forward(&x, &whole).0;
            }
            Ok(())
        })?;
        // Frozen input vectors need no gradient; what comes after a recomputed layer must hand one back to it.
        let start = if inputs.is_empty() && !trained_input { x } else { leaf(&x) };
        let end = self.temporal.rest(recomputed, &start, &whole)?;
        let slices = Slices { lm: self, rows: &rows, base, kl: options.kl_base_weight * scale.kl };
        let (sums, mut gradient) = slices.backward(&end, &codes, weights, scale, options.slice_rows);
        if recomputed < layers {
            push_back(&end, &gradient);
            if start.requires_grad() {
                gradient = start.grad();
            }
        }
        drop((start, end));
        for l in (0..recomputed).rev() {
            let x = inputs.pop().expect("one input a layer");
            let x = if l == 0 && !trained_input { x } else { leaf(&x) };
            push_back(&self.temporal.layer(l)?.forward(&x, &whole).0, &gradient);
            if x.requires_grad() {
                gradient = x.grad();
            }
        }
        if trained_input {
            push_back(&input, &gradient);
        }
        Ok(sums)
    }

    /// The sums of [`Lm::backward`] without gradients.
    ///
    /// # Errors
    /// As [`Lm::forward_train`].
    pub fn losses(
        &self,
        codes: &Tensor,
        weights: &LossWeights,
        slice_rows: i64,
    ) -> Result<PassSums, PersonaplexError> {
        self.check_codes(codes)?;
        let codes = codes.to_device(self.device).to_kind(Kind::Int64);
        tch::no_grad(|| {
            let rows = delays::to_rows(&codes, &self.config.delays, &self.initial_ids());
            let x = self.embeddings.forward(&rows.narrow(2, 0, codes.size()[2]));
            let whole = self.temporal.whole(codes.size()[2], self.device);
            let end = self.temporal.rest(0, &x, &whole)?;
            let slices = Slices { lm: self, rows: &rows, base: None, kl: 0.0 };
            Ok(slices.sums(&end, &codes, weights, slice_rows))
        })
    }

    /// Summed input vectors of all but the last row, with noise if asked for.
    fn noisy_input(&self, rows: &Tensor, alpha: f64) -> Tensor {
        let x = self.embeddings.forward(&rows.narrow(2, 0, rows.size()[2] - 1));
        if alpha <= 0.0 {
            return x;
        }
        let size = x.size();
        let bound = alpha / ((size[1] * size[2]) as f64).sqrt();
        let noise = tch::no_grad(|| Tensor::empty_like(&x).uniform_(-bound, bound));
        x + noise
    }

    /// Hidden states `[N, dim]` of the model without its adapters.
    fn base_hidden(&self, rows: &Tensor) -> Result<Tensor, PersonaplexError> {
        if self.trained == Trained::Everything {
            return Err(PersonaplexError::WholeModel { what: "a divergence from the base" });
        }
        tch::no_grad(|| {
            nn::without_adapters(|| {
                let x = self.embeddings.forward(&rows.narrow(2, 0, rows.size()[2] - 1));
                Ok(self.temporal.forward(&x, |_, _| ())?.reshape([-1, self.config.dim]))
            })
        })
    }
}

/// A copy of the handle at which differentiation stops and leaves its gradient.
fn leaf(x: &Tensor) -> Tensor {
    x.detach().set_requires_grad(true)
}

/// Sends a gradient back through what made `y`. The sum is of no interest: its gradient in `y` is `gradient` exactly.
fn push_back(y: &Tensor, gradient: &Tensor) {
    (y * gradient).sum(y.kind()).backward();
}

/// The heads of a pass, seeing some rows at a time.
struct Slices<'a> {
    lm: &'a Lm,
    /// `[B, 17, T + 1]`.
    rows: &'a Tensor,
    /// Hidden states of the base, `[N, dim]`.
    base: Option<Tensor>,
    /// Factor of the divergence from the base.
    kl: f64,
}

impl Slices<'_> {
    /// Sums and the gradient in `end`, the temporal transformer's output before its final norm `[B, T, dim]`.
    fn backward(
        &self,
        end: &Tensor,
        codes: &Tensor,
        weights: &LossWeights,
        scale: LossScale,
        slice: i64,
    ) -> (PassSums, Tensor) {
        let gradient = Tensor::empty_like(&end.detach());
        let flat = gradient.view([-1, self.lm.config.dim]);
        let sums = self.each(end, codes, weights, slice, |from, x, loss, kl| {
            let mut total = &loss.text_sum * scale.text + &loss.audio_sum * scale.audio;
            if let Some(kl) = kl {
                total += kl * self.kl;
            }
            // Without any target the total depends on nothing.
            let slot = flat.narrow(0, from, x.size()[0]);
            if total.requires_grad() {
                total.backward();
            }
            let found = x.grad();
            if found.defined() {
                slot.shallow_clone().copy_(&found);
            } else {
                let _ = slot.shallow_clone().zero_();
            }
        });
        (sums, gradient)
    }

    fn sums(&self, end: &Tensor, codes: &Tensor, weights: &LossWeights, slice: i64) -> PassSums {
        self.each(end, codes, weights, slice, |_, _, _, _| ())
    }

    fn each(
        &self,
        end: &Tensor,
        codes: &Tensor,
        weights: &LossWeights,
        slice: i64,
        mut work: impl FnMut(i64, &Tensor, &crate::loss::LossSums, Option<Tensor>),
    ) -> PassSums {
        let lm = self.lm;
        let flat = end.detach().reshape([-1, lm.config.dim]); // [N, dim]
        let n = flat.size()[0];
        let targets = Targets::by_row(codes, weights, lm.audio_delays());
        let next = self.rows.narrow(2, 1, codes.size()[2]).transpose(1, 2).reshape([n, -1]); // [N, 17]
        let mut sums = PassSums {
            text_weight: weights.text_sum(),
            audio_weight: weights.audio_sum(),
            ..PassSums::default()
        };
        sums.metrics.context_frames = weights.context_frames();
        let mut from = 0;
        while from < n {
            let size = slice.max(1).min(n - from);
            let x = leaf(&flat.narrow(0, from, size));
            let hidden = lm.temporal.normed(&x);
            let text_logits = lm.text_logits(&hidden);
            let audio_logits = lm.depformer.forward_all(&hidden, &next.narrow(0, from, size));
            let targets = targets.slice(from, size);
            let loss = target_loss(&text_logits, &audio_logits, &targets);
            let kl = self.base.as_ref().map(|base| {
                let base = base.narrow(0, from, size);
                divergence(lm, &text_logits, &base, targets.text_counted())
            });
            sums.text_sum += loss.text_sum.double_value(&[]);
            sums.audio_sum += loss.audio_sum.double_value(&[]);
            sums.kl_sum += kl.as_ref().map_or(0.0, |kl| kl.double_value(&[]));
            sums.metrics.add(&loss.metrics);
            work(from, &x, &loss, kl);
            from += size;
        }
        sums
    }
}

/// KL(base || model) of the text distribution, summed over the rows that count.
fn divergence(lm: &Lm, logits: &Tensor, base_hidden: &Tensor, counted: &Tensor) -> Tensor {
    let base = tch::no_grad(|| nn::without_adapters(|| lm.text_logits(base_hidden)));
    let base = base.log_softmax(-1, Kind::Float);
    let model = logits.log_softmax(-1, Kind::Float);
    let per_row = (base.exp() * (&base - model)).sum_dim_intlist(-1, false, Kind::Float);
    (per_row * counted).sum(Kind::Float)
}
