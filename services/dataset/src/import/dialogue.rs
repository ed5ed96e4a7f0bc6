//! One sample of a source, checked and in the form that is published.

use audio::Waveform;
use audio::wav::{WavLimits, encode_pcm16, parse};
use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Turn, is_record_id};
use domain::frame::{SAMPLE_RATE, frames_for_samples};
use domain::manifest::Sidecar;
use spoken::{parse_script, script_from_turns};

use super::ImportOptions;
use super::finding::{Fault, Findings};
use super::manifest::Sample;
use super::plan::Plan;
use super::sidecar::{self, Canonical, Surroundings};
use super::text::read_text;
use super::tree::{Tree, base_name, without_extension};
use crate::check::{Passed, check};
use crate::report::facts::DialogueFacts;

/// A manifest may be this far from the audio: a frame, since many tools round.
const DURATION_SLACK_MS: u64 = 80;

/// A sample ready to be written.
#[derive(Debug)]
pub struct Prepared {
    /// Its record; the id names the files.
    pub record: DialogueRecord,
    /// Stereo, 24 kHz, PCM16.
    pub wav: Vec<u8>,
    /// Our form.
    pub sidecar: Vec<u8>,
    /// `Speaker N: text` lines.
    pub script: String,
    /// Mono rendering, if the source has one.
    pub mono: Option<Vec<u8>>,
    /// Path of the voice clip in the source.
    pub voice: Option<String>,
    /// Counts.
    pub passed: Passed,
    /// For the report.
    pub facts: DialogueFacts,
}

/// Id of a sample: its wav's name, with what an id cannot hold replaced.
#[must_use]
pub fn id_of(wav: &str) -> String {
    let stem = base_name(without_extension(wav));
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let id: String = stem.chars().map(plain).take(64).collect();
    let id = id.trim_start_matches('.').to_owned();
    if is_record_id(&id) { id } else { "sample".into() }
}

/// Reads and checks one sample; every fault of it is noted.
pub fn prepare(
    tree: &Tree,
    plan: &Plan,
    sample: &Sample,
    options: &ImportOptions,
    findings: &mut Findings,
) -> Option<Prepared> {
    let id = id_of(&sample.wav);
    if id != base_name(without_extension(&sample.wav)) {
        findings.repaired("id_renamed", 1, &sample.wav);
    }
    let loaded = load_wav(tree, sample, options, findings);
    let sidecar_path = format!("{}.json", without_extension(&sample.wav));
    if !tree.contains(&sidecar_path) {
        findings.fault(
            sample.fault("missing_sidecar", format!("{:?} has no sidecar {sidecar_path:?}", sample.wav)),
        );
        return None;
    }
    let (wave, wav) = loaded?;
    let bytes = tree.read(&sidecar_path).map_err(|fault| findings.fault(fault)).ok()?;
    let record = plan.records.get(base_name(without_extension(&sample.wav)));
    let around = Surroundings {
        tree,
        sample,
        record,
        options,
        duration_ms: wave.duration_ms(),
        frames: frames_for_samples(wave.len()),
    };
    let canonical = sidecar::read(&sidecar_path, &bytes, &around, findings)?;
    let record = match record {
        Some(record) => DialogueRecord { id: id.clone(), ..record.clone() },
        None => {
            findings.warn("no_record", &sample.wav);
            synthesise(&id, &canonical.sidecar)
        }
    };
    let script = script(tree, &id, &record, findings)?;
    let passed = gate(sample, &record, &wav, &canonical, options, findings)?;
    let mono = tree.contains(&format!("mono_wav/{id}.wav")).then(|| tree.read(&format!("mono_wav/{id}.wav")));
    let mono = mono.transpose().map_err(|fault| findings.fault(fault)).ok()?;
    let facts = DialogueFacts::gather(&record, &canonical.sidecar, &wave, options.tokenizer.as_deref());
    Some(Prepared {
        record,
        wav,
        sidecar: canonical.bytes,
        script,
        mono,
        voice: canonical.voice,
        passed,
        facts,
    })
}

fn load_wav(
    tree: &Tree,
    sample: &Sample,
    options: &ImportOptions,
    findings: &mut Findings,
) -> Option<(Waveform, Vec<u8>)> {
    let bytes = tree.read(&sample.wav).map_err(|fault| findings.fault(fault)).ok()?;
    // Channels are counted below, with a better answer than the limit's.
    let limits = WavLimits { max_seconds: options.max_seconds, max_channels: 64 };
    let wave = match parse(&bytes, &limits) {
        Ok(wave) => wave,
        Err(error) => {
            findings.fault(sample.fault("audio", format!("{:?} is no usable WAV: {error}", sample.wav)));
            return None;
        }
    };
    if wave.channels.len() != 2 {
        let detail = format!(
            "{:?} needs 2 channels (agent left, user right), not {}",
            sample.wav,
            wave.channels.len()
        );
        findings.fault(sample.fault("channels", detail));
        return None;
    }
    check_duration(sample, wave.duration_ms(), findings);
    if wave.rate == SAMPLE_RATE && is_pcm16(&bytes) {
        return Some((wave, bytes));
    }
    let code = if wave.rate == SAMPLE_RATE { "audio_reencoded" } else { "audio_resampled" };
    findings.repaired(code, 1, format!("{} ({} Hz)", sample.wav, wave.rate));
    let converted = audio::resample::to_house_rate(&wave).and_then(|wave| Ok((encode_pcm16(&wave)?, wave)));
    match converted {
        Ok((bytes, wave)) => Some((wave, bytes)),
        Err(error) => {
            findings.fault(sample.fault("audio", format!("{:?} cannot be converted: {error}", sample.wav)));
            None
        }
    }
}

fn check_duration(sample: &Sample, audio_ms: u64, findings: &mut Findings) {
    let Some(said) = sample.duration else {
        if sample.place.is_some() {
            findings.repaired("duration_added", 1, &sample.wav);
        }
        return;
    };
    let said_ms = (said.clamp(0.0, 1e9) * 1000.0).round() as u64;
    let apart = said_ms.abs_diff(audio_ms);
    if apart > DURATION_SLACK_MS {
        let detail = format!(
            "the manifest says {said} s for {:?}, the audio has {:.3} s",
            sample.wav,
            audio_ms as f64 / 1000.0
        );
        findings.fault(sample.fault("duration", detail));
    } else if apart > 1 {
        findings.repaired("duration_corrected", 1, &sample.wav);
    }
}

/// Whether the bytes are a plain PCM16 WAV, which is published as it is.
fn is_pcm16(bytes: &[u8]) -> bool {
    let at = |range: std::ops::Range<usize>| bytes.get(range);
    at(12..16) == Some(b"fmt ") && at(20..22) == Some(&[1, 0]) && at(34..36) == Some(&[16, 0])
}

/// A record for a sample that comes without one.
fn synthesise(id: &str, sidecar: &Sidecar) -> DialogueRecord {
    let agent = domain::dialogue::Speaker::Agent;
    let turns = sidecar.turns.iter().map(|t| Turn {
        index: t.index,
        speaker: if t.speaker == agent.published_label() { agent } else { domain::dialogue::Speaker::User },
        text: t.text.clone(),
    });
    DialogueRecord {
        id: id.into(),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: "imported".into(),
        text_prompt: sidecar.text_prompt.clone(),
        turns: turns.collect(),
        context_injections: sidecar
            .context_injections
            .iter()
            .map(|i| domain::injection::Injection { frame_offset: None, ..i.clone() })
            .collect(),
        seed: std::collections::BTreeMap::new(),
        design: DesignRow { design_id: "imported".into(), row: 0 },
        model: "unknown".into(),
        cost_microusd: 0,
    }
}

/// The source's script when it fits the record, else one made from the turns.
fn script(tree: &Tree, id: &str, record: &DialogueRecord, findings: &mut Findings) -> Option<String> {
    let path = format!("scripts/{id}.txt");
    if !tree.contains(&path) {
        return match script_from_turns(&record.turns) {
            Ok(script) => Some(script),
            Err(error) => {
                findings.fault(Fault::new(id, "script", format!("dialogue {id}: {error}")));
                None
            }
        };
    }
    let bytes = tree.read(&path).map_err(|fault| findings.fault(fault)).ok()?;
    let text = read_text(&path, &bytes, findings)?;
    match parse_script(text) {
        Ok(lines) if lines.len() == record.turns.len() => Some(text.to_owned()),
        Ok(lines) => {
            let detail = format!("the script has {} turns, the dialogue {}", lines.len(), record.turns.len());
            findings.fault(Fault::new(&path, "script_turns", detail));
            None
        }
        Err(error) => {
            findings.fault(Fault::new(&path, "script", error.to_string()));
            None
        }
    }
}

/// The gates of every published dialogue. Recordings clip and single-speaker data has no words of the user: both are
/// told, not refused.
fn gate(
    sample: &Sample,
    record: &DialogueRecord,
    wav: &[u8],
    canonical: &Canonical,
    options: &ImportOptions,
    findings: &mut Findings,
) -> Option<Passed> {
    let outcome = check(record, &[], wav, &canonical.bytes, options.max_seconds);
    let reasons = match outcome {
        Ok(passed) => return Some(passed),
        Err(reasons) => reasons,
    };
    let mut refused = false;
    for reason in &reasons {
        match reason.code {
            "clipped" => findings.warn("clipped", format!("{}: {}", sample.wav, reason.detail)),
            "no_user_words" if canonical.single_speaker => findings.warn("no_user_words", &sample.wav),
            code => {
                refused = true;
                findings.fault(sample.fault(code, format!("{:?}: {}", sample.wav, reason.detail)));
            }
        }
    }
    (!refused).then(|| Passed {
        script: String::new(),
        duration_ms: parse(wav, &WavLimits { max_seconds: options.max_seconds, max_channels: 2 })
            .map_or(0, |w| w.duration_ms()),
        words: canonical.sidecar.alignments.len() as u64,
        injections: canonical.sidecar.context_injections.len() as u64,
    })
}
