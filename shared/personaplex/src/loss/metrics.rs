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
