//! Names and values of what is measured (finetune.md 6.10).

use domain::run::MetricPoint;
use personaplex::loss::LossMetrics;

use crate::loader::Sample;

/// Points of one step under one prefix.
pub(crate) struct Points {
    prefix: String,
    step: u32,
    points: Vec<MetricPoint>,
}

impl Points {
    pub(crate) fn new(prefix: &str, step: u32) -> Self {
        Self { prefix: prefix.into(), step, points: Vec::new() }
    }

    /// Adds a number that there is; one that is not finite cannot be stored and is left out.
    pub(crate) fn add(&mut self, name: &str, value: impl Into<Option<f64>>) -> &mut Self {
        if let Some(value) = value.into().filter(|v| v.is_finite()) {
            self.points.push(MetricPoint { step: self.step, name: format!("{}/{name}", self.prefix), value });
        }
        self
    }

    /// Adds the diagnostics of a loss.
    pub(crate) fn diagnostics(&mut self, m: &LossMetrics) -> &mut Self {
        self.add("real_token_loss", m.real_token_loss())
            .add("pad_token_loss", m.pad_token_loss())
            .add("real_token_pct", m.real_token_pct())
            .add("pred_pad_pct", m.pred_pad_pct())
            .add("epad_recall", m.epad_recall())
            .add("unweighted_text_loss", m.text_loss());
        for k in 0..m.audio_counts.len() {
            self.add(&format!("audio_cb{k}_loss"), m.audio_loss(k));
        }
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let wanted = format!("{}/{name}", self.prefix);
        self.points.iter().find(|p| p.name == wanted).map(|p| p.value)
    }

    pub(crate) fn take(self) -> Vec<MetricPoint> {
        self.points
    }
}

/// Adds up the diagnostics of all processes; one that saw no window has no codebooks yet.
pub(crate) fn sum_over(
    group: &dyn ranks::Group,
    m: &mut LossMetrics,
    codebooks: usize,
) -> Result<(), ranks::RanksError> {
    m.audio_loss_sums.resize(codebooks, 0.0);
    m.audio_counts.resize(codebooks, 0.0);
    let mut parts: Vec<&mut f64> = vec![
        &mut m.real_loss_sum,
        &mut m.real_count,
        &mut m.pad_loss_sum,
        &mut m.pad_count,
        &mut m.predicted_pad,
        &mut m.epad_targets,
        &mut m.epad_hits,
        &mut m.context_frames,
    ];
    parts.extend(m.audio_loss_sums.iter_mut().chain(&mut m.audio_counts));
    let mut values: Vec<f64> = parts.iter().map(|part| **part).collect();
    group.sum(&mut values)?;
    parts.into_iter().zip(values).for_each(|(part, value)| *part = value);
    Ok(())
}

/// Dialogues and windows of samples, for messages.
pub(crate) fn names(samples: &[&Sample]) -> String {
    samples.iter().map(|s| format!("{}#{}", s.dialogue, s.window.index)).collect::<Vec<_>>().join(", ")
}
