//! Whether a dialogue may be published, and every reason why not.

use audio::levels::{energy, peak};
use audio::wav::{WavLimits, parse};
use domain::dialogue::{DialogueRecord, Speaker, is_record_id};
use domain::frame::{SAMPLE_RATE, frames_for_samples, samples_to_ms};
use domain::manifest::Sidecar;
use serde::Serialize;
use spoken::script_from_turns;

/// Mean square at or below which a channel counts as silent.
const MIN_MEAN_SQUARE: f64 = 1e-6;
/// How far a word may reach past the end of the audio, seconds.
const OVERHANG_S: f64 = 0.1;

/// Why a dialogue is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Stable.
    pub code: &'static str,
    /// For the reader.
    pub detail: String,
}

fn reason(code: &'static str, detail: impl Into<String>) -> Reason {
    Reason { code, detail: detail.into() }
}

/// What a dialogue that passed has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// `Speaker N: text` lines.
    pub script: String,
    /// Milliseconds of audio.
    pub duration_ms: u64,
    /// Words with times.
    pub words: u64,
    /// Injections on the frame grid.
    pub injections: u64,
}

/// Checks a dialogue; `faults` are the gates that alignment found closed.
///
/// # Errors
/// Every reason to leave the dialogue out.
pub fn check(
    record: &DialogueRecord,
    faults: &[String],
    stereo_wav: &[u8],
    sidecar: &[u8],
    max_seconds: f64,
) -> Result<Passed, Vec<Reason>> {
    let mut reasons: Vec<Reason> = faults.iter().map(|f| reason("alignment", f)).collect();
    if !is_record_id(&record.id) {
        reasons.push(reason("id", format!("{:?} cannot name a file", record.id)));
    }
    let script = script_from_turns(&record.turns);
    if let Err(error) = &script {
        reasons.push(reason("script", error.to_string()));
    }
    let samples = check_audio(stereo_wav, max_seconds, &mut reasons);
    let sidecar: Option<Sidecar> = serde_json::from_slice(sidecar)
        .map_err(|error| reasons.push(reason("sidecar", format!("the sidecar cannot be read: {error}"))))
        .ok();
    if let (Some(sidecar), Some(samples)) = (&sidecar, samples) {
        check_words(sidecar, seconds_of(samples), &mut reasons);
        check_turns(record, sidecar, &mut reasons);
        check_injections(record, sidecar, frames_for_samples(samples), &mut reasons);
    }
    match (script, sidecar, samples) {
        (Ok(script), Some(sidecar), Some(samples)) if reasons.is_empty() => Ok(Passed {
            script,
            duration_ms: samples_to_ms(samples as u64, SAMPLE_RATE),
            words: sidecar.alignments.len() as u64,
            injections: sidecar.context_injections.len() as u64,
        }),
        _ => Err(reasons),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour has 86.4 million samples")]
fn seconds_of(samples: usize) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

/// Samples per channel; `None` when the rest of the checks would make no sense.
#[expect(clippy::cast_precision_loss, reason = "an hour has 86.4 million samples")]
fn check_audio(wav: &[u8], max_seconds: f64, reasons: &mut Vec<Reason>) -> Option<usize> {
    let limits = WavLimits { max_seconds, max_channels: 2 };
    let wave = parse(wav, &limits).map_err(|error| reasons.push(reason("audio", error.to_string()))).ok()?;
    if wave.channels.len() != 2 {
        let detail = format!("needs 2 channels (agent left, user right), not {}", wave.channels.len());
        reasons.push(reason("channels", detail));
        return None;
    }
    if wave.rate != SAMPLE_RATE {
        reasons.push(reason("rate", format!("needs {SAMPLE_RATE} Hz, not {}", wave.rate)));
        return None;
    }
    for (side, channel) in ["left (agent)", "right (user)"].iter().zip(&wave.channels) {
        let mean = energy(channel) / channel.len().max(1) as f64;
        if mean <= MIN_MEAN_SQUARE {
            reasons.push(reason(
                "silent_channel",
                format!("the {side} channel is silent: mean square {mean:.1e}"),
            ));
        }
        if peak(channel) >= 1.0 {
            reasons.push(reason("clipped", format!("the {side} channel reaches full scale")));
        }
    }
    Some(wave.len())
}

fn check_words(sidecar: &Sidecar, seconds: f64, reasons: &mut Vec<Reason>) {
    let words = &sidecar.alignments;
    for speaker in [Speaker::Agent, Speaker::User] {
        let label = speaker.published_label();
        if !words.iter().any(|w| w.2 == label) {
            let detail = format!("0 of {} words belong to {label}", words.len());
            reasons.push(reason(
                if speaker == Speaker::Agent { "no_agent_words" } else { "no_user_words" },
                detail,
            ));
        }
    }
    let mut bad = |what: &str, found: Option<(usize, &domain::manifest::SidecarWord)>| {
        if let Some((index, (word, (start, end), label))) = found {
            let detail = format!("word {index} {word:?} [{start}, {end}] of {label} {what}");
            reasons.push(reason("word_times", detail));
        }
    };
    let mut numbered = words.iter().enumerate();
    bad("does not start before it ends", numbered.find(|(_, (_, (s, e), _))| !(*s >= 0.0 && s < e)));
    let mut numbered = words.iter().enumerate();
    bad(
        &format!("ends after the audio of {seconds:.3} s"),
        numbered.find(|(_, (_, (_, e), _))| *e > seconds + OVERHANG_S),
    );
    let mut pairs = words.iter().enumerate().zip(words.iter().skip(1));
    bad("is not in order of start", pairs.find(|((_, a), b)| a.1.0 > b.1.0).map(|(a, _)| a));
}

fn check_turns(record: &DialogueRecord, sidecar: &Sidecar, reasons: &mut Vec<Reason>) {
    let (found, expected) = (sidecar.turns.len(), record.turns.len());
    if found != expected {
        let detail = format!("the sidecar has {found} turns, the record {expected}");
        reasons.push(reason("turn_count", detail));
    }
    let differs = sidecar.turns.iter().zip(&record.turns).find(|(published, turn)| {
        (published.index, published.speaker.as_str()) != (turn.index, turn.speaker.published_label())
    });
    if let Some((published, turn)) = differs {
        let detail = format!("turn {} of the record is turn {} in the sidecar", turn.index, published.index);
        reasons.push(reason("turn_mismatch", detail));
    }
}

fn check_injections(record: &DialogueRecord, sidecar: &Sidecar, frames: usize, reasons: &mut Vec<Reason>) {
    let (found, expected) = (sidecar.context_injections.len(), record.context_injections.len());
    if found != expected {
        let detail = format!("the sidecar has {found} injections, the record {expected}");
        reasons.push(reason("injection_count", detail));
    }
    for (index, injection) in sidecar.context_injections.iter().enumerate() {
        let detail = match injection.frame_offset {
            Some(offset) if (offset as usize) < frames => continue,
            Some(offset) => format!("injection {index} is at frame {offset} of {frames}"),
            None => format!("injection {index} has no frame"),
        };
        reasons.push(reason("injection_offset", detail));
    }
}
