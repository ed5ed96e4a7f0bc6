//! One sidecar: labels, times and injections (finetune.md 9, 14, 19, 22).

use std::collections::BTreeMap;

use domain::manifest::Sidecar;
use domain::preflight::Severity::Error;

use crate::findings::Findings;

/// How far a word may reach past the end of the audio, seconds.
const OVERHANG_S: f64 = 0.1;
/// Words that end so many times later than the audio are in other units.
const OTHER_UNITS: f64 = 100.0;

/// Tells every fault; whether the dialogue can be made into windows.
pub fn check(
    sidecar: &Sidecar,
    label: &str,
    seconds: f64,
    frames: usize,
    at: &str,
    findings: &mut Findings,
) -> bool {
    let good = labels(sidecar, label, at, findings);
    let timed = times(sidecar, seconds, at, findings);
    let placed = injections(sidecar, frames, at, findings);
    good && timed && placed
}

fn labels(sidecar: &Sidecar, label: &str, at: &str, findings: &mut Findings) -> bool {
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, _, label) in &sidecar.alignments {
        *labels.entry(label.as_str()).or_default() += 1;
    }
    if labels.contains_key(label) {
        return true;
    }
    let found: Vec<String> = labels.iter().map(|(l, n)| format!("{n} of {l}")).collect();
    let found = if found.is_empty() { "none at all".to_owned() } else { found.join(", ") };
    let detail = format!("no word of {label}; there are {found}");
    findings.at(Error, "label_missing", at, detail);
    false
}

fn times(sidecar: &Sidecar, seconds: f64, at: &str, findings: &mut Findings) -> bool {
    let (mut good, mut before) = (true, 0.0);
    for (index, (word, (start, end), _)) in sidecar.alignments.iter().enumerate() {
        let fault = if !(start.is_finite() && end.is_finite()) || *start < 0.0 || end < start {
            Some(("word_times", "is no span of time".to_owned()))
        } else if *end > seconds * OTHER_UNITS {
            Some((
                "word_units",
                format!("lies far past the {seconds:.2} s of audio: are the times milliseconds?"),
            ))
        } else if *end > seconds + OVERHANG_S {
            Some(("word_past_end", format!("reaches past the {seconds:.2} s of audio")))
        } else if *start < before {
            Some(("words_unsorted", format!("starts before the word before it ({before})")))
        } else {
            None
        };
        if let Some((code, detail)) = fault {
            findings.at(Error, code, at, format!("word {index} {word:?} {start} to {end} {detail}"));
            good = false;
            break;
        }
        before = *start;
    }
    good
}

fn injections(sidecar: &Sidecar, frames: usize, at: &str, findings: &mut Findings) -> bool {
    let mut good = true;
    for (index, injection) in sidecar.context_injections.iter().enumerate() {
        let turns = sidecar.turns.len();
        let fault = match injection.frame_offset {
            None => Some(("injection_unplaced", "has no frame_offset".to_owned())),
            Some(offset) if usize::try_from(offset).map_or(true, |o| o >= frames) => {
                Some(("injection_past_end", format!("is at frame {offset}, the audio has {frames} frames")))
            }
            // A published set without turns keeps its offsets; there is nothing to compare them with.
            Some(_) if turns > 0 && injection.after_turn as usize >= turns => Some((
                "injection_turn",
                format!("comes after turn {}, there are {turns}", injection.after_turn),
            )),
            Some(_) => None,
        };
        if let Some((code, detail)) = fault {
            findings.at(Error, code, at, format!("injection {index} {detail}"));
            good = false;
        }
    }
    good
}
