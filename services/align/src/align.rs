//! One dialogue: mono and report in, stereo and sidecar out.

use aligner::Aligner;
use audio::Waveform;
use audio::mix::{Boundary, Segment, route_stereo};
use domain::dialogue::DialogueRecord;
use domain::frame::{SAMPLE_RATE, frames_for_samples};
use domain::manifest::Sidecar;
use domain::render::RenderReport;
use streams::offsets::place_injections;

use crate::checks::{self, Limits};
use crate::error::AlignError;
use crate::gates;
use crate::hearing::hear_words;
use crate::words::{Repairs, TimedWords, time_words};

/// An aligned dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Aligned {
    /// Left the agent, right the user; as long as the rendering.
    pub stereo: Waveform,
    /// Words, turns and injections in the published form.
    pub sidecar: Sidecar,
    /// What was put right in the engine's report.
    pub repairs: Repairs,
    /// Gates that the dialogue does not pass.
    pub faults: Vec<String>,
}

/// Aligns a dialogue from the speech engine's own times.
///
/// # Errors
/// When the rendering is not of this record or not mono at 24 kHz.
pub fn align(
    record: &DialogueRecord,
    report: &RenderReport,
    mono: &Waveform,
    max_estimated_share: f64,
) -> Result<Aligned, AlignError> {
    let samples = samples(record, mono)?;
    let report = RenderReport { duration_ms: mono.duration_ms(), ..report.clone() };
    let timed = time_words(record, &report)?;
    finish(record, &report, samples, timed, max_estimated_share, Vec::new())
}

/// Aligns a dialogue by its sound; of the report only the place of every turn is used.
///
/// # Errors
/// As [`align`].
pub fn align_acoustically(
    aligner: &Aligner,
    record: &DialogueRecord,
    report: &RenderReport,
    mono: &Waveform,
    limits: &Limits,
) -> Result<Aligned, AlignError> {
    let samples = samples(record, mono)?;
    let report = RenderReport { duration_ms: mono.duration_ms(), ..report.clone() };
    let (timed, readings) = hear_words(aligner, record, &report, mono)?;
    let heard = checks::faults(&timed, &readings, samples, limits);
    finish(record, &report, samples, timed, limits.max_estimated_share, heard)
}

fn samples<'a>(record: &DialogueRecord, mono: &'a Waveform) -> Result<&'a [f32], AlignError> {
    match mono.channels.as_slice() {
        [samples] if mono.rate == SAMPLE_RATE => Ok(samples),
        channels => {
            Err(AlignError::Format { id: record.id.clone(), channels: channels.len(), rate: mono.rate })
        }
    }
}

fn finish(
    record: &DialogueRecord,
    report: &RenderReport,
    samples: &[f32],
    timed: TimedWords,
    max_estimated_share: f64,
    heard: Vec<String>,
) -> Result<Aligned, AlignError> {
    let stereo = sides(&timed, samples)?;
    let mut faults = gates::faults(&timed, samples, &stereo, max_estimated_share);
    faults.extend(heard);
    let mut injections = record.context_injections.clone();
    let frames = u32::try_from(frames_for_samples(samples.len())).unwrap_or(u32::MAX);
    if let Err(error) = place_injections(&mut injections, &timed.turns, frames) {
        faults.push(error.to_string());
    }
    let TimedWords { words, turns, repairs, .. } = timed;
    // Relative to `stereo_wav/` of the published dataset.
    let voice = format!("../speaker_samples/{}.wav", report.agent_voice);
    let sidecar = Sidecar::publish(words, &turns, record.text_prompt.clone(), Some(voice), injections);
    Ok(Aligned { stereo, sidecar, repairs, faults })
}

fn sides(timed: &TimedWords, mono: &[f32]) -> Result<Waveform, AlignError> {
    let mut segments: Vec<Segment> = Vec::new();
    for word in &timed.words {
        match segments.last_mut().filter(|s| s.speaker == word.speaker) {
            Some(segment) => segment.end_ms = word.end_ms,
            None => {
                segments.push(Segment { speaker: word.speaker, start_ms: word.start_ms, end_ms: word.end_ms })
            }
        }
    }
    if segments.is_empty() {
        let silence = vec![0.0; mono.len()];
        return Ok(Waveform::stereo(SAMPLE_RATE, silence.clone(), silence));
    }
    Ok(route_stereo(mono, SAMPLE_RATE, &segments, Boundary::LowestEnergy)?)
}
