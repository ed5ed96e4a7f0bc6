//! What the sound itself says against a dialogue (speech.md 3.4): words skipped, repeated, added or not to be heard, a
//! last word that is cut, sound between the words, a rate at which nobody speaks.

use aligner::{Verdict, WordTime};
use audio::levels::rms_dbfs;
use domain::frame::SAMPLE_RATE;

use crate::fill::Span;
use crate::hearing::TurnReading;
use crate::words::TimedWords;

/// When a dialogue is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Largest share of words with interpolated times.
    pub max_estimated_share: f64,
    /// Largest share of words left out, repeated or added.
    pub max_edit_rate: f64,
    /// Smallest share of words that are heard where they should be.
    pub min_coverage: f64,
    /// Smallest distance between speech and what lies between it, dB.
    pub min_speech_ratio_db: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_estimated_share: 0.15, max_edit_rate: 0.02, min_coverage: 0.85, min_speech_ratio_db: 20.0 }
    }
}

/// Confidence from which a word counts as heard.
const HEARD: f32 = 0.5;
/// Words left out in a row that are a fault at any edit rate.
const LONG_SKIP: usize = 2;
/// Words per second that a voice speaks with, and the words from which a turn's rate is looked at.
const RATES: std::ops::RangeInclusive<f64> = 0.8..=8.0;
const RATED_WORDS: usize = 5;
/// Part of the pause on either side of it that may hold the end or start of a word, ms.
const EDGE_MS: u64 = 60;
/// Shortest pause that is measured without its edges, ms, and how much of them is needed for a verdict.
const SHORTEST_PAUSE_MS: u64 = 60;
const ENOUGH_PAUSE_MS: u64 = 300;
/// Sound at the very end of a turn that never falls this far below the turn's level was cut off, dB.
const TAIL_DB: f32 = 14.0;
/// Length of the end that is looked at, and of the steps in which it is searched, ms.
const TAIL_MS: u64 = 50;
const STEP_MS: u64 = 10;
const STEP_SAMPLES: usize = SAMPLE_RATE as usize / 100;
/// Below this there is no sound, dBFS.
const NO_SOUND_DBFS: f32 = -65.0;

/// Everything that is wrong, for the reader; empty when nothing is.
#[must_use]
pub fn faults(timed: &TimedWords, readings: &[TurnReading], mono: &[f32], limits: &Limits) -> Vec<String> {
    let mut faults = edit_faults(readings, limits);
    faults.extend(coverage_fault(readings, limits));
    for reading in readings {
        faults.extend(rate_fault(reading));
        faults.extend(tail_fault(reading, mono));
    }
    faults.extend(ratio_fault(timed, mono, limits));
    faults
}

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^53")]
fn edit_faults(readings: &[TurnReading], limits: &Limits) -> Vec<String> {
    let words: usize = readings.iter().map(|r| r.reading.words.len()).sum();
    let edits: usize = readings.iter().map(|r| r.reading.edits()).sum();
    let mut faults = Vec::new();
    if edits as f64 > limits.max_edit_rate * words as f64 {
        let turns: Vec<String> =
            readings.iter().filter(|r| r.reading.edits() > 0).map(|r| r.index.to_string()).collect();
        faults.push(format!(
            "{edits} of {words} words were skipped, repeated or added (turns {}); at most {:.1} % may ([align].max_edit_rate)",
            turns.join(", "),
            limits.max_edit_rate * 100.0
        ));
    }
    let long = readings.iter().filter(|r| r.reading.longest_skip() >= LONG_SKIP);
    faults
        .extend(long.map(|r| format!("turn {} skips {} words in a row", r.index, r.reading.longest_skip())));
    faults
}

fn is_heard(word: &WordTime, verdict: Verdict) -> bool {
    !word.estimated && word.confidence >= HEARD && verdict != Verdict::Skipped
}

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^53")]
fn coverage_fault(readings: &[TurnReading], limits: &Limits) -> Option<String> {
    let words: usize = readings.iter().map(|r| r.reading.words.len()).sum();
    let pairs = readings.iter().flat_map(|r| r.reading.words.iter().zip(&r.reading.verdicts));
    let heard = pairs.filter(|(word, verdict)| is_heard(word, **verdict)).count();
    ((heard as f64) < limits.min_coverage * words as f64).then(|| {
        format!(
            "{heard} of {words} words are heard; at least {:.0} % must be ([align].min_coverage)",
            limits.min_coverage * 100.0
        )
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts of words and milliseconds are far below 2^53")]
fn rate_fault(turn: &TurnReading) -> Option<String> {
    let words = turn.reading.words.len();
    let (first, last) = (turn.reading.words.first()?, turn.reading.words.last()?);
    let seconds = last.end_ms.saturating_sub(first.start_ms) as f64 / 1000.0;
    let rate = words as f64 / seconds.max(0.01);
    (words >= RATED_WORDS && !RATES.contains(&rate))
        .then(|| format!("turn {} has {words} words in {seconds:.1} s", turn.index))
}

fn stretch(mono: &[f32], (from, to): Span) -> &[f32] {
    let at =
        |ms: u64| usize::try_from(ms * u64::from(SAMPLE_RATE) / 1000).unwrap_or(usize::MAX).min(mono.len());
    &mono[at(from)..at(to).max(at(from))]
}

/// Speech dies away. Sound that is loud up to its last moment was cut.
fn tail_fault(turn: &TurnReading, mono: &[f32]) -> Option<String> {
    let (from, to) = turn.window;
    let last = turn.reading.words.last()?;
    let mut end = to;
    while end > from + last.start_ms
        && rms_dbfs(stretch(mono, (end.saturating_sub(STEP_MS), end))) < NO_SOUND_DBFS
    {
        end -= STEP_MS;
    }
    let level = rms_dbfs(stretch(mono, (from + turn.reading.words.first()?.start_ms, end)));
    let steps = stretch(mono, (end.saturating_sub(TAIL_MS), end)).chunks(STEP_SAMPLES);
    let tail = steps.map(rms_dbfs).fold(f32::INFINITY, f32::min);
    (level > NO_SOUND_DBFS && tail > level - TAIL_DB).then(|| {
        format!("turn {} ends {:.0} dB below its level: its last word may be cut", turn.index, level - tail)
    })
}

/// Level of the words against that of the pauses.
fn ratio_fault(timed: &TimedWords, mono: &[f32], limits: &Limits) -> Option<String> {
    let (mut speech, mut pauses) = (Vec::new(), Vec::new());
    let (mut end, mut paused) = (0, 0);
    let duration = mono.len() as u64 * 1000 / u64::from(SAMPLE_RATE);
    let mut spans: Vec<Span> = timed.words.iter().map(|w| (w.start_ms, w.end_ms)).collect();
    spans.sort_unstable();
    spans.push((duration, duration));
    for (start, stop) in spans {
        let pause = (end + EDGE_MS, start.saturating_sub(EDGE_MS));
        if pause.1 >= pause.0 + SHORTEST_PAUSE_MS {
            pauses.extend_from_slice(stretch(mono, pause));
            paused += pause.1 - pause.0;
        }
        speech.extend_from_slice(stretch(mono, (start, stop)));
        end = end.max(stop);
    }
    let ratio = f64::from(rms_dbfs(&speech) - rms_dbfs(&pauses));
    (paused >= ENOUGH_PAUSE_MS && !speech.is_empty() && ratio < limits.min_speech_ratio_db).then(|| {
        format!(
            "speech is {ratio:.0} dB above what lies between it; at least {:.0} dB must be ([align].min_speech_ratio_db)",
            limits.min_speech_ratio_db
        )
    })
}
