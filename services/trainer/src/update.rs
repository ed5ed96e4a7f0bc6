//! One optimizer update (finetune.md 6.1): draw, weigh, pass, normalise, add up over processes, clip, step.

use std::collections::BTreeMap;
use std::time::Instant;

use domain::run::{FloatType, LossNorm, TrainingSpec};
use personaplex::loss::{LossSettings, LossWeights};
use personaplex::{Lm, LossScale, PassOptions, PassSums};
use ranks::Group;
use tch::Device;

use crate::TrainError;
use crate::batch::Batch;
use crate::loader::Sample;
use crate::numbers::{Points, names, sum_over};
use crate::optim::{AdamW, root_of_squares};
use crate::schedule::LrPlan;

/// What an update needs to know.
pub(crate) struct Rules<'a> {
    pub spec: &'a TrainingSpec,
    pub loss: LossSettings,
    pub pass: PassOptions,
    pub plan: LrPlan,
    pub device: Device,
}

/// What an update found.
pub(crate) struct Update {
    pub points: Points,
    /// Frames that are not padding, of all processes.
    pub frames: u64,
    /// What was not finite; the parameters are then as they were.
    pub fault: Option<String>,
    /// Parameters that the loss does not reach. Looked at in the second update: before the first one B is zero and
    /// nothing reaches A.
    pub unreached: Vec<String>,
}

/// Weights of a micro-batch and of the whole update.
#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    text: f64,
    audio: f64,
    text_frames: f64,
}

impl Rules<'_> {
    /// Trains on `drawn`, this process's windows of step `step` (from 1).
    pub(crate) fn update(
        &self,
        step: u32,
        drawn: &[&Sample],
        lm: &Lm,
        optim: &mut AdamW,
        group: &dyn Group,
    ) -> Result<Update, TrainError> {
        let began = Instant::now();
        self.seed(step, group.rank());
        let batches = self.weigh(drawn, lm)?;
        let total = self.total_weight(&batches, group)?;
        optim.zero_grad();
        let (mut sums, mut means) = (PassSums::default(), [0.0; 3]);
        let count = (batches.len() * group.world()) as f64;
        for (batch, weights, own) in &batches {
            let of = match self.spec.loss_norm {
                LossNorm::Global => total,
                LossNorm::PerMicrobatch => own.times(count),
            };
            let scale = LossScale {
                text: share(self.spec.text_loss_weight, of.text),
                audio: share(self.spec.audio_loss_weight, of.audio),
                kl: share(1.0, of.text_frames),
            };
            let found = lm.backward(&batch.codes, weights, scale, &self.pass)?;
            match self.spec.grad_accum_dtype {
                FloatType::Bfloat16 => optim.round_gradients(),
                FloatType::Float32 if batches.len() > 1 => optim.take_off(),
                FloatType::Float32 => {}
            }
            means[0] += share(found.text_sum, of.text);
            means[1] += share(found.audio_sum, of.audio);
            means[2] += share(found.kl_sum, of.text_frames);
            add(&mut sums, &found);
        }
        let mut gradients = optim.gradients();
        group.sum_tensors(&gradients.tensors)?;
        let mut seen = sums.metrics;
        sum_over(group, &mut seen, lm.config().dep_q as usize)?;
        let frames: usize = batches.iter().map(|(b, ..)| b.frames).sum();
        let context_rows: usize = batches.iter().map(|(b, ..)| b.context_rows).sum();
        let mut numbers = [means[0], means[1], means[2], frames as f64, context_rows as f64];
        group.sum(&mut numbers)?;
        let [text, audio, kl, frames, context_rows] = numbers;

        let norms = gradients.norms();
        let unreached = if optim.updates() == 1 { optim.without_gradient(&norms) } else { Vec::new() };
        let loss_gradient = root_of_squares(&norms);
        let b_norms = optim.b_norms();
        let l2 = optim.add_l2(&mut gradients, self.spec.lora_l2_weight, &b_norms);
        let group_norms = group_norms(&b_norms);
        let norm = if l2.loss > 0.0 { gradients.norm() } else { loss_gradient };
        let loss = self.spec.text_loss_weight * text
            + self.spec.audio_loss_weight * audio
            + self.spec.kl_base_weight * kl
            + l2.loss;
        let (lr, beta1) = self.plan.at(step - 1);
        let clip = (self.spec.max_norm / (norm + 1e-6)).min(1.0);
        let fault = not_finite(&[("the loss", loss), ("the gradient norm", norm)])
            .map(|what| format!("{what} at step {step}; windows: {}", names(drawn)));
        if fault.is_none() {
            optim.step(&gradients, lr, beta1, clip);
        }

        let seconds = began.elapsed().as_secs_f64();
        let mut points = Points::new("train", step);
        points
            .add("loss", loss)
            .add("text_loss", text)
            .add("audio_loss", audio)
            .add("lora_l2_loss", l2.loss)
            .add("l2_grad_ratio", share(l2.gradient_norm, loss_gradient))
            .add("kl_base_loss", (self.spec.kl_base_weight > 0.0).then_some(kl))
            .add("lr", lr)
            .add("beta1", beta1)
            .add("grad_norm", norm)
            .add("clipped", f64::from(clip < 1.0))
            .add("ctx_injected_pct", 100.0 * share(seen.context_frames, frames))
            .add("ctx_samples", context_rows)
            .add("frames_per_s", frames / seconds)
            .add("audio_s_per_s", frames / domain::frame::FRAME_RATE / seconds)
            .add("empty_text_batches", f64::from(total.text == 0.0))
            .diagnostics(&seen);
        for (group, norm) in group_norms {
            points.add(&format!("lora_B_norm_{group}"), norm);
        }
        Ok(Update { points, frames: frames as u64, fault, unreached })
    }

    /// Noise is a function of the step and the process: nothing of it needs to be kept to go on exactly.
    fn seed(&self, step: u32, rank: usize) {
        let mixed = self.spec.seed ^ (u64::from(step) << 20) ^ ((rank as u64) << 52);
        tch::manual_seed(i64::from_ne_bytes(mixed.to_ne_bytes()));
    }

    fn weigh(&self, drawn: &[&Sample], lm: &Lm) -> Result<Vec<(Batch, LossWeights, Weight)>, TrainError> {
        drawn
            .chunks(self.spec.batch_size as usize)
            .map(|samples| {
                let batch = Batch::collate(samples, self.device);
                let weights = LossWeights::new(
                    &batch.codes,
                    lm.config(),
                    &batch.prompt_lengths,
                    Some(&batch.context_mask),
                    &self.loss,
                )?;
                let own = Weight {
                    text: weights.text_sum(),
                    audio: weights.audio_sum(),
                    text_frames: weights.text_frames(),
                };
                Ok((batch, weights, own))
            })
            .collect()
    }

    /// Known from the codes alone, so that micro-batches and processes of any shape add up to one large batch.
    fn total_weight(
        &self,
        batches: &[(Batch, LossWeights, Weight)],
        group: &dyn Group,
    ) -> Result<Weight, TrainError> {
        let mut sums = [0.0; 3];
        for (_, _, w) in batches {
            sums[0] += w.text;
            sums[1] += w.audio;
            sums[2] += w.text_frames;
        }
        group.sum(&mut sums)?;
        Ok(Weight { text: sums[0], audio: sums[1], text_frames: sums[2] })
    }
}

impl Weight {
    fn times(self, n: f64) -> Self {
        Self { text: self.text * n, audio: self.audio * n, text_frames: self.text_frames * n }
    }
}

/// A part of a whole; nothing of nothing.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

pub(crate) fn add(sums: &mut PassSums, found: &PassSums) {
    sums.text_sum += found.text_sum;
    sums.text_weight += found.text_weight;
    sums.audio_sum += found.audio_sum;
    sums.audio_weight += found.audio_weight;
    sums.kl_sum += found.kl_sum;
    sums.metrics.add(&found.metrics);
}

fn not_finite(values: &[(&str, f64)]) -> Option<String> {
    values.iter().find(|(_, v)| !v.is_finite()).map(|(what, value)| format!("{what} is {value}"))
}

/// Norm of `lora_B` over each kind of module: in backbone attention, gating, depformer and heads.
fn group_norms(b_norms: &[(&str, f64)]) -> BTreeMap<&'static str, f64> {
    let mut groups: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (name, norm) in b_norms {
        let group = match name {
            n if n.starts_with("depformer") || n.starts_with("linears") => "depformer",
            n if n.contains(".self_attn.") => "attention",
            n if n.contains(".gating.") => "gating",
            _ => "heads",
        };
        *groups.entry(group).or_default() += norm * norm;
    }
    groups.values_mut().for_each(|squares| *squares = squares.sqrt());
    groups
}

/// The loss settings of a specification.
pub(crate) fn loss_settings(spec: &TrainingSpec) -> LossSettings {
    use personaplex::loss::SemanticStreams;
    LossSettings {
        text_padding_weight: spec.text_padding_weight,
        epad_weight: spec.epad_weight,
        first_codebook_weight_multiplier: spec.first_codebook_weight_multiplier,
        semantic_streams: match spec.semantic_streams {
            domain::run::SemanticStreams::Agent => SemanticStreams::Agent,
            domain::run::SemanticStreams::Both => SemanticStreams::Both,
        },
        user_audio_weight: spec.user_audio_weight,
    }
}

/// How a pass trades memory for time.
pub(crate) fn pass_options(spec: &TrainingSpec) -> PassOptions {
    PassOptions {
        recompute_layers: match (spec.gradient_checkpointing, spec.recompute_layers) {
            (false, _) => 0,
            (true, None) => usize::MAX,
            (true, Some(layers)) => layers as usize,
        },
        slice_rows: i64::from(spec.sliced_heads_frames),
        kl_base_weight: spec.kl_base_weight,
        neftune_alpha: spec.neftune_alpha,
    }
}
