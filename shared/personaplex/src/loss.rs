//! Masked, weighted cross entropy (finetune.md 4.1, 4.2). Weights depend on codes and masks alone, so a trainer can sum
//! them over a whole optimiser step before any forward pass and normalise each micro-batch by the global sums.

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};
use weights::LmConfig;

use crate::PersonaplexError;
use crate::lm::{TrainOutput, target_masks};

/// End-of-padding text id: the cue that a word starts.
pub const EPAD: i64 = 0;

/// Which first codebooks the multiplier acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SemanticStreams {
    /// The agent's only.
    Agent,
    /// The agent's and the user's.
    #[default]
    Both,
}

/// Weights of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossSettings {
    /// Weight of text targets that are PAD or EPAD.
    pub text_padding_weight: f64,
    /// Weight of EPAD targets; as padding when absent.
    pub epad_weight: Option<f64>,
    /// Weight of first codebooks relative to the others.
    pub first_codebook_weight_multiplier: f64,
    pub semantic_streams: SemanticStreams,
    /// Weight of the user's codebooks.
    pub user_audio_weight: f64,
}

impl Default for LossSettings {
    fn default() -> Self {
        Self {
            text_padding_weight: 0.03,
            epad_weight: None,
            first_codebook_weight_multiplier: 4.0,
            semantic_streams: SemanticStreams::Both,
            user_audio_weight: 1.0,
        }
    }
}

/// Weight of every target, and which targets count for the diagnostics.
#[derive(Debug)]
pub struct LossWeights {
    /// `[B, T]` f32.
    pub text: Tensor,
    /// `[B, K, T]` f32.
    pub audio: Tensor,
    /// `[B, T]` boolean: valid text outside prompt and context.
    text_counted: Tensor,
    /// `[B, K, T]` boolean: valid audio outside the prompt.
    audio_counted: Tensor,
    context_frames: f64,
    pad: i64,
}

impl LossWeights {
    /// From `codes` `[B, 17, T]`, the prompt length of each row and an optional boolean `context_mask` `[B, T]`. Frames
    /// before the prompt length weigh nothing in any stream, context frames nothing in text.
    pub fn new(
        codes: &Tensor,
        config: &LmConfig,
        prompt_lengths: &[i64],
        context_mask: Option<&Tensor>,
        settings: &LossSettings,
    ) -> Result<Self, PersonaplexError> {
        let size = codes.size();
        let shape = |what, wanted: String, found| PersonaplexError::Shape { what, wanted, found };
        if size.len() != 3 || size[1] != config.streams() as i64 {
            return Err(shape("codes", format!("[B, {}, T]", config.streams()), size));
        }
        let (b, t, device) = (size[0], size[2], codes.device());
        if prompt_lengths.len() as i64 != b {
            return Err(shape("prompt lengths", format!("[{b}]"), vec![prompt_lengths.len() as i64]));
        }
        if let Some(found) = context_mask.map(Tensor::size).filter(|s| *s != [b, t]) {
            return Err(shape("context mask", format!("[{b}, {t}]"), found));
        }
        let (text_mask, audio_mask) = target_masks(codes, &config.delays[1..=config.dep_q as usize]);
        let frames = Tensor::arange(t, (Kind::Int64, device)).unsqueeze(0);
        let spoken = frames.ge_tensor(&Tensor::from_slice(prompt_lengths).to_device(device).unsqueeze(1)); // [B, T]
        let audio_counted = audio_mask.logical_and(&spoken.unsqueeze(1));
        let mut text_counted = text_mask.logical_and(&spoken);
        let mut context_frames = 0.0;
        if let Some(context) = context_mask {
            let context = context.to_device(device).to_kind(Kind::Bool);
            context_frames = count(&text_counted.logical_and(&context));
            text_counted = text_counted.logical_and(&context.logical_not());
        }
        let pad = i64::from(config.existing_text_padding_id);
        let text = text_target_weights(&codes.select(1, 0), pad, settings) * &text_counted;
        let audio = codebook_weights(config.dep_q, settings).to_device(device).unsqueeze(-1) * &audio_counted;
        Ok(Self { text, audio, text_counted, audio_counted, context_frames, pad })
    }

    /// Sum of the text weights.
    pub fn text_sum(&self) -> f64 {
        self.text.sum(Kind::Double).double_value(&[])
    }

    /// Sum of the audio weights.
    pub fn audio_sum(&self) -> f64 {
        self.audio.sum(Kind::Double).double_value(&[])
    }
}

fn text_target_weights(targets: &Tensor, pad: i64, settings: &LossSettings) -> Tensor {
    let ones = targets.ones_like().to_kind(Kind::Float);
    let epad = settings.epad_weight.unwrap_or(settings.text_padding_weight);
    ones.masked_fill(&targets.eq(pad), settings.text_padding_weight).masked_fill(&targets.eq(EPAD), epad)
}

/// `[K]` f32.
fn codebook_weights(dep_q: i64, settings: &LossSettings) -> Tensor {
    let half = dep_q.min(8);
    let weights: Vec<f32> = (0..dep_q)
        .map(|k| {
            let first = k == 0 || (k == half && settings.semantic_streams == SemanticStreams::Both);
            let stream = if k < half { 1.0 } else { settings.user_audio_weight };
            (stream * if first { settings.first_codebook_weight_multiplier } else { 1.0 }) as f32
        })
        .collect();
    Tensor::from_slice(&weights)
}

/// Weighted sums of one micro-batch. `text_sum / text_weight` is its own mean; a trainer divides by the sums of the whole
/// optimiser step instead. A sum without weight is zero and has a zero gradient.
#[derive(Debug)]
pub struct LossSums {
    pub text_sum: Tensor,
    pub text_weight: f64,
    pub audio_sum: Tensor,
    pub audio_weight: f64,
    pub metrics: LossMetrics,
}

/// Unweighted diagnostics over valid frames outside the prompt (text: outside context too). Sums, so that micro-batches
/// and ranks add up; losses in nats.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LossMetrics {
    /// Text targets that are neither PAD nor EPAD.
    pub real_loss_sum: f64,
    pub real_count: f64,
    pub pad_loss_sum: f64,
    pub pad_count: f64,
    /// Frames where the most likely text id is PAD or EPAD.
    pub predicted_pad: f64,
    pub epad_targets: f64,
    /// EPAD targets whose most likely id is EPAD.
    pub epad_hits: f64,
    pub context_frames: f64,
    /// Per codebook.
    pub audio_loss_sums: Vec<f64>,
    pub audio_counts: Vec<f64>,
}

impl LossMetrics {
    /// Adds another micro-batch.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.real_loss_sum, other.real_loss_sum),
            (&mut self.real_count, other.real_count),
            (&mut self.pad_loss_sum, other.pad_loss_sum),
            (&mut self.pad_count, other.pad_count),
            (&mut self.predicted_pad, other.predicted_pad),
            (&mut self.epad_targets, other.epad_targets),
            (&mut self.epad_hits, other.epad_hits),
            (&mut self.context_frames, other.context_frames),
        ];
        for (sum, value) in pairs {
            *sum += value;
        }
        for (mine, theirs) in [
            (&mut self.audio_loss_sums, &other.audio_loss_sums),
            (&mut self.audio_counts, &other.audio_counts),
        ] {
            mine.resize(mine.len().max(theirs.len()), 0.0);
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += t);
        }
    }

    pub fn real_token_loss(&self) -> Option<f64> {
        ratio(self.real_loss_sum, self.real_count)
    }

    pub fn pad_token_loss(&self) -> Option<f64> {
        ratio(self.pad_loss_sum, self.pad_count)
    }

    /// Share of counted text frames whose target is a real token, percent.
    pub fn real_token_pct(&self) -> Option<f64> {
        ratio(100.0 * self.real_count, self.real_count + self.pad_count)
    }

    /// Share of counted text frames where padding is predicted, percent.
    pub fn pred_pad_pct(&self) -> Option<f64> {
        ratio(100.0 * self.predicted_pad, self.real_count + self.pad_count)
    }

    pub fn epad_recall(&self) -> Option<f64> {
        ratio(self.epad_hits, self.epad_targets)
    }

    /// Mean loss of codebook k.
    pub fn audio_loss(&self, k: usize) -> Option<f64> {
        ratio(*self.audio_loss_sums.get(k)?, *self.audio_counts.get(k)?)
    }

    /// Mean text loss over all counted frames.
    pub fn text_loss(&self) -> Option<f64> {
        ratio(self.real_loss_sum + self.pad_loss_sum, self.real_count + self.pad_count)
    }
}

fn ratio(sum: f64, count: f64) -> Option<f64> {
    (count > 0.0).then(|| sum / count)
}

fn count(mask: &Tensor) -> f64 {
    mask.sum(Kind::Double).double_value(&[])
}

/// Loss of one micro-batch. Rows without weight are left out before the cross entropy: their logits may be anything,
/// NaN included, and get no gradient.
pub fn masked_loss(output: &TrainOutput, codes: &Tensor, weights: &LossWeights) -> LossSums {
    let codes = codes.to_device(output.text_logits.device());
    let k = output.audio_logits.size()[1];
    let text = gather(&output.text_logits, &codes.select(1, 0), &weights.text, &weights.text_counted);
    let audio = gather(&output.audio_logits, &codes.narrow(1, 1, k), &weights.audio, &weights.audio_counted);
    let mut metrics = LossMetrics { context_frames: weights.context_frames, ..LossMetrics::default() };
    tch::no_grad(|| {
        text_metrics(&text, weights.pad, &mut metrics);
        audio_metrics(&audio, k, output.audio_logits.size()[2], &mut metrics);
    });
    LossSums {
        text_sum: text.weighted_sum(),
        text_weight: weights.text_sum(),
        audio_sum: audio.weighted_sum(),
        audio_weight: weights.audio_sum(),
        metrics,
    }
}

/// The rows that count, flattened.
struct Rows {
    /// Flat positions.
    index: Tensor,
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    /// Cross entropy in f32.
    loss: Tensor,
}

impl Rows {
    fn weighted_sum(&self) -> Tensor {
        // Rows of zero weight may be here for the diagnostics; zero times a finite loss is zero.
        (&self.loss * &self.weights).sum(Kind::Float)
    }
}

fn gather(logits: &Tensor, targets: &Tensor, weights: &Tensor, counted: &Tensor) -> Rows {
    // Weights may have been made on the CPU, ahead of the forward pass.
    let device = logits.device();
    let (weights, counted) = (weights.to_device(device), counted.to_device(device));
    let index = counted.reshape([-1]).nonzero().squeeze_dim(1);
    let vocabulary = *logits.size().last().expect("logits have a vocabulary");
    let logits = logits.reshape([-1, vocabulary]).index_select(0, &index).to_kind(Kind::Float);
    let targets = targets.reshape([-1]).index_select(0, &index);
    let weights = weights.reshape([-1]).index_select(0, &index);
    let loss = logits.cross_entropy_loss::<&Tensor>(&targets, None, tch::Reduction::None, -100, 0.0);
    Rows { index, logits, targets, weights, loss }
}

fn text_metrics(rows: &Rows, pad: i64, m: &mut LossMetrics) {
    let padding = |ids: &Tensor| ids.eq(pad).logical_or(&ids.eq(EPAD));
    let target_pad = padding(&rows.targets);
    let epad = rows.targets.eq(EPAD);
    let likeliest = rows.logits.argmax(-1, false);
    let total = rows.loss.sum(Kind::Double).double_value(&[]);
    m.pad_loss_sum = (&rows.loss * &target_pad).sum(Kind::Double).double_value(&[]);
    m.real_loss_sum = total - m.pad_loss_sum;
    m.pad_count = count(&target_pad);
    m.real_count = rows.targets.numel() as f64 - m.pad_count;
    m.predicted_pad = count(&padding(&likeliest));
    m.epad_targets = count(&epad);
    m.epad_hits = count(&epad.logical_and(&likeliest.eq(EPAD)));
}

fn audio_metrics(rows: &Rows, codebooks: i64, t: i64, m: &mut LossMetrics) {
    let codebook = rows.index.divide_scalar_mode(t, "floor").remainder(codebooks);
    let add = |values: &Tensor| {
        let sums = Tensor::zeros([codebooks], (Kind::Double, values.device()));
        let sums = sums.index_add(0, &codebook, &values.to_kind(Kind::Double));
        Vec::<f64>::try_from(sums).expect("a flat f64 tensor")
    };
    m.audio_loss_sums = add(&rows.loss);
    m.audio_counts = add(&rows.loss.ones_like());
}
