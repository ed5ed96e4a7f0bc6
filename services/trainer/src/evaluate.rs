//! Losses over a fixed list of windows: weighted sums over all of them, divided once.

use domain::run::MetricPoint;
use personaplex::Lm;
use personaplex::loss::{LossMetrics, LossSettings, LossWeights};
use tch::Device;

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
        let values = [("eval/loss", total), ("eval/text_loss", self.text), ("eval/audio_loss", self.audio)];
        let mut points = values.map(|(name, value)| MetricPoint { step, name: name.into(), value }).to_vec();
        points.extend(diagnostics("eval", step, &self.metrics));
        points
    }
}

/// Rows that the heads see at a time: 1,024 keep the products of a large card busy, and their logits fit beside the
/// model.
pub(crate) const SLICE_ROWS: i64 = 1024;

/// Unweighted losses and what the model makes of padding, per stream and codebook; only those with targets.
pub(crate) fn diagnostics(side: &str, step: u32, metrics: &LossMetrics) -> Vec<MetricPoint> {
    let mut values = vec![
        ("real_token_loss".to_owned(), metrics.real_token_loss()),
        ("pad_token_loss".to_owned(), metrics.pad_token_loss()),
        ("real_token_pct".to_owned(), metrics.real_token_pct()),
        ("pred_pad_pct".to_owned(), metrics.pred_pad_pct()),
        ("epad_recall".to_owned(), metrics.epad_recall()),
    ];
    values.extend(
        (0..metrics.audio_counts.len()).map(|k| (format!("audio_cb{k}_loss"), metrics.audio_loss(k))),
    );
    values
        .into_iter()
        .filter_map(|(name, value)| Some(MetricPoint { step, name: format!("{side}/{name}"), value: value? }))
        .collect()
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
        let sums = lm.losses(&batch.codes, &weights, SLICE_ROWS)?;
        text = (text.0 + sums.text_sum, text.1 + sums.text_weight);
        audio = (audio.0 + sums.audio_sum, audio.1 + sums.audio_weight);
        metrics.add(&sums.metrics);
    }
    let mean = |(sum, weight): (f64, f64)| if weight > 0.0 { sum / weight } else { 0.0 };
    Ok(EvalLoss { text: mean(text), audio: mean(audio), metrics })
}
