//! A sidecar of any published kind becomes one of ours; one that is ours already keeps its bytes.

use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dialogue::{DialogueRecord, Speaker};
use domain::injection::Injection;
use domain::manifest::Sidecar;
use serde_json::Value;
use streams::offsets::place_after_turn;

use super::finding::{Fault, Findings};
use super::labels::{AGENT_LABELS, count, find_main, speaker_of};
use super::manifest::Sample;
use super::script_words;
use super::text::read_text;
use super::tree::{Tree, base_name, without_extension};
use super::words::{self, TimedWord};
use super::{ImportOptions, record};

/// What a sidecar is read with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub tree: &'a Tree,
    pub sample: &'a Sample,
    pub record: Option<&'a DialogueRecord>,
    pub options: &'a ImportOptions,
    /// Length of the audio.
    pub duration_ms: u64,
    /// The same in frames.
    pub frames: usize,
}

/// A sidecar as it is published.
#[derive(Debug)]
pub(super) struct Canonical {
    pub bytes: Vec<u8>,
    pub sidecar: Sidecar,
    /// The voice clip in the source.
    pub voice: Option<String>,
    /// Whether all words are the agent's.
    pub single_speaker: bool,
}

/// Reads a sidecar; none when it has a fault.
pub(super) fn read(
    file: &str,
    bytes: &[u8],
    around: &Surroundings,
    findings: &mut Findings,
) -> Option<Canonical> {
    let text = read_text(file, bytes, findings)?;
    let value: Value = match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => value,
        Ok(_) => {
            findings.fault(Fault::new(file, "json", "the sidecar is no JSON object"));
            return None;
        }
        Err(error) => {
            let line = u64::try_from(error.line()).unwrap_or(0);
            let nan = if text.contains("NaN") { "; NaN is no JSON" } else { "" };
            findings.fault(Fault::new(file, "json", format!("not JSON: {error}{nan}")).at(line));
            return None;
        }
    };
    let before = findings.faults.len();
    let duration_ms = i64::try_from(around.duration_ms).unwrap_or(i64::MAX);
    let timed = words::read(&value, file, duration_ms, findings)?;
    let main = main_label(&timed, file, around.options, findings)?;
    let single_speaker = timed.iter().all(|w| w.label == main);
    let mut words = speakers(timed, &main, file, findings);
    let turns = turns(&value, &words, &main, file, around, findings);
    if around.options.script_words {
        script_words::replace(&mut words, &turns, file, findings);
    }
    let injections = injections(&value, &turns, file, around, findings);
    let (voice_prompt, voice) = voice(&value, file, around, findings);
    if findings.faults.len() > before {
        return None;
    }
    let from_record = || around.record.map(|r| r.text_prompt.clone()).unwrap_or_default();
    let own = value["text_prompt"].as_str().filter(|t| !t.trim().is_empty()).map(str::to_owned);
    let text_prompt = around.sample.text_prompt.clone().or(own).unwrap_or_else(from_record);
    if text_prompt.trim().is_empty() {
        findings.warn("no_text_prompt", file);
    }
    let mut sidecar = Sidecar::publish(words, &turns, text_prompt, voice_prompt, injections);
    sidecar.text_conditions = value.get("text_conditions").filter(|c| !c.is_null()).cloned();
    let ours = serde_json::to_vec(&sidecar).expect("a sidecar is plain JSON");
    let same =
        ours == bytes || serde_json::from_slice::<Sidecar>(bytes).is_ok_and(|theirs| theirs == sidecar);
    findings.repaired("sidecar_rewritten", u64::from(!same), file);
    let bytes = if same { bytes.to_vec() } else { ours };
    Some(Canonical { bytes, sidecar, voice, single_speaker })
}

fn main_label(
    words: &[TimedWord],
    file: &str,
    options: &ImportOptions,
    findings: &mut Findings,
) -> Option<String> {
    let labels: Vec<&str> = words.iter().map(|w| w.label.as_str()).collect();
    let found = match &options.main_speaker_label {
        Some(asked) => labels.iter().find(|l| *l == asked).copied(),
        None => find_main(&labels),
    };
    if found.is_none() {
        let asked = options.main_speaker_label.clone().unwrap_or_else(|| AGENT_LABELS.join(", "));
        let detail = format!(
            "0 of {} words belong to the agent ({asked}); labels found: {}",
            labels.len(),
            count(&labels)
        );
        findings.fault(Fault::new(file, "no_agent_words", detail));
    }
    let main = found?;
    let mut others: Vec<&str> = labels.iter().filter(|l| **l != main).copied().collect();
    others.sort_unstable();
    others.dedup();
    if others.len() > 1 {
        let detail =
            format!("words of {} speakers: {}; there are two sides", others.len() + 1, count(&labels));
        findings.fault(Fault::new(file, "third_speaker", detail));
        return None;
    }
    Some(main.to_owned())
}

fn speakers(timed: Vec<TimedWord>, main: &str, file: &str, findings: &mut Findings) -> Vec<AlignedWord> {
    let unsigned = |ms: i64| u64::try_from(ms).unwrap_or(0);
    let mut relabelled = 0;
    let words = timed
        .into_iter()
        .map(|w| {
            let speaker = if w.label == main { Speaker::Agent } else { Speaker::User };
            relabelled += u64::from(w.label != speaker.published_label());
            AlignedWord {
                word: w.text,
                start_ms: unsigned(w.start_ms),
                end_ms: unsigned(w.end_ms),
                speaker,
                estimated: w.estimated,
            }
        })
        .collect();
    findings.repaired("word_relabelled", relabelled, file);
    words
}

fn turns(
    value: &Value,
    words: &[AlignedWord],
    main: &str,
    file: &str,
    around: &Surroundings,
    findings: &mut Findings,
) -> Vec<AlignedTurn> {
    let turns = match &value["turns"] {
        Value::Array(items) if !items.is_empty() => listed_turns(items, main, file, around, findings),
        _ => {
            findings.repaired("turns_from_words", 1, file);
            merged_turns(words)
        }
    };
    if let Some(record) = around.record {
        let (found, expected) = (turns.len(), record.turns.len());
        if found != expected {
            let listed = value["turns"].as_array().is_some_and(|t| !t.is_empty());
            let from = if listed { "the sidecar has" } else { "its words form" };
            let detail = format!(
                "{from} {found} turns, the record {expected}: after_turn would mean another turn; put `turns` into the sidecar"
            );
            findings.fault(Fault::new(file, "turn_count", detail));
        } else if let Some((a, b)) = turns.iter().zip(&record.turns).find(|(a, b)| a.speaker != b.speaker) {
            let detail = format!(
                "turn {} is of {:?} in the sidecar and of {:?} in the record",
                a.index, a.speaker, b.speaker
            );
            findings.fault(Fault::new(file, "turn_mismatch", detail));
        }
    }
    turns
}

fn listed_turns(
    items: &[Value],
    main: &str,
    file: &str,
    around: &Surroundings,
    findings: &mut Findings,
) -> Vec<AlignedTurn> {
    let mut out = Vec::with_capacity(items.len());
    for (position, item) in (0u32..).zip(items) {
        let mut refuse = |code: &str, detail: String| findings.fault(Fault::new(file, code, detail));
        if item["index"].as_u64() != Some(u64::from(position)) {
            refuse("turn_index", format!("turn at position {position} carries index {}", item["index"]));
            continue;
        }
        let label = item["speaker"].as_str().unwrap_or_default();
        let Some(speaker) = speaker_of(label, Some(main)) else { continue };
        let (Some(start), Some(end)) = (item["start"].as_f64(), item["end"].as_f64()) else {
            refuse("turn_times", format!("turn {position} has no start and end in seconds"));
            continue;
        };
        let (mut start_ms, mut end_ms) = (milliseconds(start), milliseconds(end));
        if start_ms > around.duration_ms + 100 {
            refuse("turn_times", format!("turn {position} starts at {start} s, after the end of the audio"));
            continue;
        }
        if end_ms < start_ms || end_ms > around.duration_ms || start < 0.0 {
            findings.repaired("turn_clamped", 1, format!("{file} turn {position}"));
            start_ms = start_ms.min(around.duration_ms);
            end_ms = end_ms.clamp(start_ms, around.duration_ms);
        }
        let text = item["text"]
            .as_str()
            .map(str::to_owned)
            .or_else(|| Some(around.record?.turns.get(position as usize)?.text.clone()));
        out.push(AlignedTurn { index: position, speaker, start_ms, end_ms, text: text.unwrap_or_default() });
    }
    out
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds.clamp(0.0, 1e9) * 1000.0).round() as u64
}

/// Consecutive words of one speaker as a turn. Two turns of one speaker in a row become one: that is why the number must
/// be the record's.
fn merged_turns(words: &[AlignedWord]) -> Vec<AlignedTurn> {
    let mut turns: Vec<AlignedTurn> = Vec::new();
    for word in words {
        match turns.last_mut() {
            Some(turn) if turn.speaker == word.speaker => {
                turn.end_ms = turn.end_ms.max(word.end_ms);
                turn.text.push(' ');
                turn.text.push_str(word.word.trim());
            }
            _ => turns.push(AlignedTurn {
                index: u32::try_from(turns.len()).unwrap_or(u32::MAX),
                speaker: word.speaker,
                start_ms: word.start_ms,
                end_ms: word.end_ms,
                text: word.word.trim().to_owned(),
            }),
        }
    }
    turns
}

fn injections(
    value: &Value,
    turns: &[AlignedTurn],
    file: &str,
    around: &Surroundings,
    findings: &mut Findings,
) -> Vec<Injection> {
    let mut faults = Vec::new();
    let mut list = record::injections(&value["context_injections"], turns.len(), &mut faults);
    for (code, detail) in faults {
        findings.fault(Fault::new(file, code, detail));
    }
    let recorded = around.record.map_or(&[][..], |r| &r.context_injections);
    if list.is_empty() && !recorded.is_empty() {
        list = recorded.to_vec();
    } else if around.record.is_some() && list.len() != recorded.len() {
        let detail = format!("the sidecar has {} injections, the record {}", list.len(), recorded.len());
        findings.fault(Fault::new(file, "injection_count", detail));
    }
    for (index, injection) in list.iter_mut().enumerate() {
        if injection.frame_offset.is_none() {
            match place_after_turn(injection.after_turn, turns) {
                Ok((frame, _)) => {
                    injection.frame_offset = Some(frame);
                    findings.repaired("injection_placed", 1, format!("{file} injection {index}"));
                }
                // Out of range: told with the record or the list already.
                Err(_) => continue,
            }
        }
        let offset = injection.frame_offset.unwrap_or_default() as usize;
        if offset >= around.frames {
            let detail =
                format!("injection {index} is at frame {offset}, the audio has {} frames", around.frames);
            findings.fault(Fault::new(file, "offset_beyond_audio", detail));
        }
        if let Some(tokenizer) = &around.options.tokenizer
            && let Ok(tokens) = tokenizer.context_tokens(&injection.text)
            && tokens.len() > around.options.max_injection_tokens
        {
            let (n, most) = (tokens.len(), around.options.max_injection_tokens);
            let detail =
                format!("injection {index} has {n} tokens with its tags, at most {most} are allowed");
            findings.fault(Fault::new(file, "injection_too_long", detail));
        }
    }
    list
}

/// The published path of the voice and its file in the source.
fn voice(
    value: &Value,
    file: &str,
    around: &Surroundings,
    findings: &mut Findings,
) -> (Option<String>, Option<String>) {
    let (asked, from) = match (&around.sample.voice_prompt, value["voice_prompt"].as_str()) {
        (Some(path), _) => {
            (path.as_str(), around.sample.place.as_ref().map_or(file, |(manifest, _)| manifest))
        }
        (None, Some(path)) => (path, file),
        (None, None) => return (None, None),
    };
    if around.options.drop_voices {
        findings.repaired("voice_dropped", 1, file);
        return (None, None);
    }
    let published = |path: String| (Some(format!("../speaker_samples/{}", base_name(&path))), Some(path));
    if !asked.to_ascii_lowercase().ends_with(".wav") {
        let stem = base_name(without_extension(asked));
        let sample = format!("speaker_samples/{stem}.wav");
        if around.tree.contains(&sample) {
            findings.repaired("voice_from_sample", 1, file);
            return published(sample);
        }
        let what = if asked.to_ascii_lowercase().ends_with(".pt") {
            "holds one model's inputs and no audio, and training needs audio"
        } else {
            "holds no audio"
        };
        let detail = format!(
            "voice_prompt {asked:?} {what}: put the voice's clip into the dataset as {sample}, or import without voices (drop_voices)"
        );
        findings.fault(Fault::new(file, "voice_prompt", detail));
        return (None, None);
    }
    match around.tree.resolve(from, asked) {
        Ok(found) => published(found.path),
        Err((code, detail)) => {
            findings.fault(Fault::new(file, code, format!("voice_prompt {detail}")));
            (None, None)
        }
    }
}
