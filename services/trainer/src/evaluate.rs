//! Losses over a fixed list of windows: weighted sums over all of them, divided once.

use domain::run::MetricPoint;
use personaplex::Lm;
use personaplex::loss::{LossMetrics, LossSettings, LossWeights, masked_loss};
use tch::{Device, no_grad};

use crate::TrainError;
use crate::batch::Batch;
use crate::loader::Sample;

/// Text and audio loss, weighted as in training.
pub(crate) struct EvalLoss {
    pub text: f64,
    pub audio: f64,
    metrics: LossMetrics,
}

impl EvalLoss {
    /// The total as the training weighs it.
    pub(crate) fn total(&self, text_weight: f64, audio_weight: f64) -> f64 {
        text_weight * self.text + audio_weight * self.audio
    }

    /// Numbers for Postgres.
    pub(crate) fn points(&self, step: u32, total: f64) -> Vec<MetricPoint> {
        let mut points = vec![
            ("eval/loss", Some(total)),
            ("eval/text_loss", Some(self.text)),
            ("eval/audio_loss", Some(self.audio)),
        ];
        points.push(("eval/real_token_loss", self.metrics.real_token_loss()));
        points.push(("eval/pred_pad_pct", self.metrics.pred_pad_pct()));
        points
            .into_iter()
            .filter_map(|(name, value)| Some(MetricPoint { step, name: name.into(), value: value? }))
            .collect()
    }
}

/// Runs the list in batches of `batch_size`, without gradients.
pub(crate) fn evaluate(
    lm: &Lm,
    samples: &[Sample],
    batch_size: usize,
    settings: &LossSettings,
    device: Device,
) -> Result<EvalLoss, TrainError> {
    let (mut text, mut audio) = ((0.0, 0.0), (0.0, 0.0));
    let mut metrics = LossMetrics::default();
    for chunk in samples.chunks(batch_size.max(1)) {
        let batch = Batch::collate(&chunk.iter().collect::<Vec<_>>(), device);
        let weights = LossWeights::new(
            &batch.codes,
            lm.config(),
            &batch.prompt_lengths,
            Some(&batch.context_mask),
            settings,
        )?;
        let sums =
            no_grad(|| lm.forward_train(&batch.codes).map(|out| masked_loss(&out, &batch.codes, &weights)))?;
        text = (text.0 + sums.text_sum.double_value(&[]), text.1 + sums.text_weight);
        audio = (audio.0 + sums.audio_sum.double_value(&[]), audio.1 + sums.audio_weight);
        metrics.add(&sums.metrics);
    }
    let mean = |(sum, weight): (f64, f64)| if weight > 0.0 { sum / weight } else { 0.0 };
    Ok(EvalLoss { text: mean(text), audio: mean(audio), metrics })
}
