use tch::{Kind, Tensor};
use weights::LmConfig;

use super::{EPAD, LossSettings, SemanticStreams};
use crate::PersonaplexError;
use crate::lm::target_masks;

/// Weight of every target, and which targets count for the diagnostics.
#[derive(Debug)]
pub struct LossWeights {
    /// `[B, T]` f32.
    pub text: Tensor,
    /// `[B, K, T]` f32.
    pub audio: Tensor,
    /// `[B, T]` boolean: valid text outside prompt and context.
    pub(super) text_counted: Tensor,
    /// `[B, K, T]` boolean: valid audio outside the prompt.
    pub(super) audio_counted: Tensor,
    pub(super) context_frames: f64,
    pub(super) pad: i64,
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
            context_frames = super::rows::count(&text_counted.logical_and(&context));
            text_counted = text_counted.logical_and(&context.logical_not());
        }
        let pad = i64::from(config.existing_text_padding_id);
        let text = text_target_weights(&codes.select(1, 0), pad, settings) * &text_counted;
        let audio = codebook_weights(config.dep_q, settings).to_device(device).unsqueeze(-1) * &audio_counted;
        Ok(Self { text, audio, text_counted, audio_counted, context_frames, pad })
    }

    /// Valid text frames inside context, which weigh nothing.
    #[must_use]
    pub const fn context_frames(&self) -> f64 {
        self.context_frames
    }

    /// Text frames that the diagnostics count.
    #[must_use]
    pub fn text_frames(&self) -> f64 {
        super::rows::count(&self.text_counted)
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
