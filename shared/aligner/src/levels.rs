//! Where sound begins after a pause, to a few milliseconds: features smear an edge over 50 ms, levels do not.

/// Milliseconds from one level to the next.
const STEP_MS: usize = 5;
/// Samples of a step and of the stretch that one level is measured over.
const STEP: usize = 80;
const STRETCH: usize = 160;
/// Share of the levels below which lies the noise floor; share of those above it below which is all but loud speech.
const FLOOR_SHARE: f32 = 0.03;
const SPEECH_SHARE: f32 = 0.9;
/// Sound is this far above the floor, and not further below the speech, dB.
const ABOVE_FLOOR: f32 = 9.0;
const BELOW_SPEECH: f32 = 38.0;
/// Distance of speech and noise floor from which edges can be seen, dB.
const CLEAR: f32 = 35.0;

/// Samples of a tenth of a second.
const QUIET: usize = 1600;
/// 12 dB as a ratio of energies.
const CLEARLY_QUIETER: f64 = 16.0;

/// Levels of a sound in dB, one every 5 ms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Levels {
    values: Vec<f32>,
    threshold: f32,
    /// Whether the noise is so low that edges of sound are edges of speech.
    pub(crate) clear: bool,
}

/// The level below which this share of the levels lies; the lowest possible for none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a length"
)]
fn share_of(levels: &[f32], share: f32) -> f32 {
    let mut sorted = levels.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted.get((sorted.len() as f32 * share) as usize).copied().unwrap_or(f32::MIN)
}

/// The quietest tenth of a second; none where it is not clearly quieter than the rest.
pub(crate) fn quietest(samples: &[f32]) -> Option<&[f32]> {
    let energy = |part: &[f32]| part.iter().map(|s| f64::from(s * s)).sum::<f64>();
    let quiet = samples.chunks_exact(QUIET).min_by(|a, b| energy(a).total_cmp(&energy(b)))?;
    #[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^53")]
    let mean = |part: &[f32]| energy(part) / part.len() as f64;
    (mean(quiet) * CLEARLY_QUIETER <= mean(samples)).then_some(quiet)
}

impl Levels {
    #[expect(clippy::cast_precision_loss, reason = "a stretch has few samples")]
    /// The first and last `padding` samples do not count for the noise floor: they were not recorded.
    pub(crate) fn of(samples: &[f32], padding: usize) -> Self {
        let values: Vec<f32> = (0..samples.len() / STEP)
            .map(|i| {
                let from = (i * STEP).saturating_sub(STRETCH / 2);
                let stretch = &samples[from..samples.len().min(i * STEP + STRETCH / 2)];
                let mean = stretch.iter().map(|s| s * s).sum::<f32>() / stretch.len().max(1) as f32;
                10.0 * mean.max(1e-3).log10()
            })
            .collect();
        let edge = (padding + STRETCH).div_ceil(STEP);
        let recorded = values.get(edge..values.len().saturating_sub(edge)).filter(|list| !list.is_empty());
        let above_floor = share_of(recorded.unwrap_or(&values), FLOOR_SHARE) + ABOVE_FLOOR;
        let heard: Vec<f32> = values.iter().copied().filter(|level| *level >= above_floor).collect();
        let speech = share_of(&heard, SPEECH_SHARE);
        let clear = speech - above_floor >= CLEAR - ABOVE_FLOOR;
        Self { values, threshold: above_floor.max(speech - BELOW_SPEECH), clear }
    }

    /// Whether there is sound at this time.
    pub(crate) fn loud(&self, ms: usize) -> bool {
        self.values.get(ms / STEP_MS).is_some_and(|level| *level >= self.threshold)
    }

    /// Where the sound that is heard at `at` begins, not before `earliest`; where it is quiet at `at`, where the next
    /// sound begins, not after `latest`.
    pub(crate) fn onset(&self, at: usize, earliest: usize, latest: usize) -> usize {
        let mut onset = at;
        if self.loud(at) {
            while onset >= earliest + STEP_MS && self.loud(onset - STEP_MS) {
                onset -= STEP_MS;
            }
        } else {
            while onset + STEP_MS <= latest && !self.loud(onset) {
                onset += STEP_MS;
            }
        }
        onset
    }

    /// The longest quiet stretch that begins between `from` and `to` and ends before `limit`.
    pub(crate) fn quiet(&self, from: usize, to: usize, limit: usize) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        let mut at = from;
        while at < to {
            let mut end = at;
            while end < limit && !self.loud(end) {
                end += STEP_MS;
            }
            if end > at && best.is_none_or(|(s, e)| end - at > e - s) {
                best = Some((at, end));
            }
            at = end.max(at + STEP_MS);
        }
        best.filter(|(_, end)| *end < limit)
    }
}
