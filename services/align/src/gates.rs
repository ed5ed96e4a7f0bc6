//! What a dialogue must fulfil to be trained on (finetune.md 1.4, 1.5).

use audio::Waveform;
use audio::levels::energy;
use domain::dialogue::Speaker;

use crate::words::TimedWords;

/// Mean square below which a channel counts as silent.
const MIN_MEAN_SQUARE: f64 = 1e-6;
/// Share of the mono energy that must be found again in the two channels.
const MIN_KEPT_ENERGY: f64 = 0.8;

/// Everything that is wrong, for the reader; empty when the dialogue may be trained on.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^53")]
pub fn faults(timed: &TimedWords, mono: &[f32], stereo: &Waveform, max_estimated_share: f64) -> Vec<String> {
    let mut faults = Vec::new();
    let (words, estimated) = (timed.words.len(), timed.words.iter().filter(|w| w.estimated).count());
    let share = estimated as f64 / words.max(1) as f64;
    if share > max_estimated_share {
        faults.push(format!(
            "{estimated} of {words} words have interpolated times; at most {:.0} % may ([align].max_estimated_share)",
            max_estimated_share * 100.0
        ));
    }
    for (side, speaker) in [("agent", Speaker::Agent), ("user", Speaker::User)] {
        if !timed.words.iter().any(|w| w.speaker == speaker) {
            faults.push(format!("0 of {words} words belong to the {side}"));
        }
    }
    for (what, turns) in
        [("too short for its words", &timed.cramped), ("without a measured word", &timed.unmeasured)]
    {
        faults.extend(turns.iter().map(|turn| format!("turn {turn} is {what}")));
    }
    faults.extend(sound_faults(mono, stereo));
    faults
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples are far below 2^53")]
fn sound_faults(mono: &[f32], stereo: &Waveform) -> Vec<String> {
    let mut faults = Vec::new();
    for (side, channel) in ["left (agent)", "right (user)"].iter().zip(&stereo.channels) {
        let mean = energy(channel) / channel.len().max(1) as f64;
        if mean <= MIN_MEAN_SQUARE {
            faults.push(format!("the {side} channel is silent: mean square {mean:.1e}"));
        }
    }
    let (kept, all) = (stereo.channels.iter().map(|c| energy(c)).sum::<f64>(), energy(mono));
    if kept < MIN_KEPT_ENERGY * all {
        faults.push(format!("the channels hold {:.0} % of the rendered energy", 100.0 * kept / all));
    }
    if stereo.len() != mono.len() {
        faults.push(format!("the channels have {} samples, the rendering {}", stereo.len(), mono.len()));
    }
    faults
}
