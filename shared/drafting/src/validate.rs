//! The rules that a record must keep (finetune.md 2.4). Every fault is collected, with a stable code.
//!
//! [`faults`] looks at one record alone. [`batch`] compares it with others (V10) and a batch with its targets (warnings
//! of V06, V09 and V11); [`answer_fault`] is about how a writing model stopped (V12). V13 is ours: what the pack says must
//! and must not be said.

use domain::dialogue::{DialogueRecord, FaultCode, RecordFault, Speaker, is_record_id};
use domain::injection::Placement;
use domain::pack::DomainPack;

use crate::brief::{self, FACT_SEPARATOR};
use crate::grammar::injections_wanted;

pub mod batch;
mod grounding;
mod personal;
pub mod repair;

/// Longest brief: each token is one 80 ms frame of the prefix.
const MAX_BRIEF_TOKENS: usize = 400;
/// Longest turn.
const MAX_TURN_WORDS: usize = 120;
/// Tokens of the tags around an injection.
const TAG_TOKENS: usize = 6;

/// Injections after one turn.
const MAX_AT_A_TURN: usize = 2;

#[derive(Default)]
struct Faults(Vec<RecordFault>);

impl Faults {
    fn require(&mut self, holds: bool, code: FaultCode, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push(RecordFault { code, detail: detail() });
        }
    }
}

/// Every rule that the record breaks; empty for a good one.
#[must_use]
pub fn faults(pack: &DomainPack, record: &DialogueRecord) -> Vec<RecordFault> {
    let mut faults = Faults::default();
    faults.require(is_record_id(&record.id), FaultCode::V01, || format!("{:?} is no record id", record.id));
    turns(pack, record, &mut faults);
    texts(record, &mut faults);
    injections(pack, record, &mut faults);
    placement(pack, record, &mut faults);
    sections(pack, record, &mut faults);
    grounding::check(record, &mut faults);
    personal::check(record, &mut faults);
    compliance(pack, record, &mut faults);
    faults.0
}

/// Before a turn by the agent: reactive; by the user: proactive. `None` when there is no such turn.
#[must_use]
pub fn placement_of(record: &DialogueRecord, after_turn: u32) -> Option<Placement> {
    let turn = record.turns.get(usize::try_from(after_turn).ok()?)?;
    Some(match turn.speaker {
        Speaker::User => Placement::Proactive,
        Speaker::Agent => Placement::Reactive,
    })
}

fn turns(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let call = &pack.call;
    let count = u32::try_from(record.turns.len()).unwrap_or(u32::MAX);
    faults.require((call.min_turns..=call.max_turns).contains(&count), FaultCode::V01, || {
        format!("{count} turns; the domain wants {} to {}", call.min_turns, call.max_turns)
    });
    let first = record.turns.first().map(|t| t.speaker);
    faults.require(first == Some(call.initiator), FaultCode::V01, || {
        format!("the first speaker is {first:?}, not {:?}", call.initiator)
    });
    for (i, turn) in record.turns.iter().enumerate() {
        faults.require(usize::try_from(turn.index) == Ok(i), FaultCode::V01, || {
            format!("turn {i} has the index {}", turn.index)
        });
    }
    let most = if call.strict_alternation { 1 } else { 2 };
    for run in record.turns.chunk_by(|a, b| a.speaker == b.speaker).filter(|run| run.len() > most) {
        faults.require(false, FaultCode::V02, || {
            format!("{} turns of the same speaker from turn {:?}", run.len(), run.first().map(|t| t.index))
        });
    }
    let words: usize = record.turns.iter().map(|t| t.text.split_whitespace().count()).sum();
    faults.require(u32::try_from(words).is_ok_and(|w| w <= call.max_words), FaultCode::V01, || {
        format!("{words} words; at most {}", call.max_words)
    });
}

fn texts(record: &DialogueRecord, faults: &mut Faults) {
    for turn in &record.turns {
        let at = turn.index;
        let words = turn.text.split_whitespace().count();
        faults.require((1..=MAX_TURN_WORDS).contains(&words), FaultCode::V03, || {
            format!("turn {at} has {words} words, not 1 to {MAX_TURN_WORDS}")
        });
        faults.require(turn.text.chars().any(char::is_alphanumeric), FaultCode::V03, || {
            format!("turn {at} has nothing to say: {:?}", turn.text)
        });
        let forbidden = |c: char| "<>[]{}()*#_`|\\~".contains(c) || c.is_control();
        if let Some(found) = turn.text.chars().find(|c| forbidden(*c)) {
            faults.require(false, FaultCode::V03, || format!("turn {at} has {found:?}"));
        }
        let label = turn.text.split_once(':').map(|(label, _)| label.trim().to_lowercase());
        let labelled = label.is_some_and(|l| {
            ["agent", "user", "broker", "client", "assistant", "system"].contains(&l.as_str())
                || l.starts_with("speaker ")
        });
        faults.require(!labelled, FaultCode::V03, || format!("turn {at} starts with a speaker label"));
    }
}

fn injections(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let wanted = injections_wanted(&record.seed);
    let found = record.context_injections.len();
    faults.require(found == wanted, FaultCode::V05, || {
        format!("{found} injections; the design wants {wanted}")
    });
    for (i, injection) in record.context_injections.iter().enumerate() {
        let after = usize::try_from(injection.after_turn).unwrap_or(usize::MAX);
        faults.require(after.saturating_add(1) < record.turns.len(), FaultCode::V04, || {
            format!("injection {i} is after turn {after} of {}", record.turns.len())
        });
        let used = record.turns.iter().skip(after.saturating_add(1)).any(|t| t.speaker == Speaker::Agent);
        faults.require(used, FaultCode::V04, || format!("no agent turn follows injection {i}"));
        let tokens = estimate_tokens(&injection.text) + TAG_TOKENS;
        faults.require(
            u32::try_from(tokens).is_ok_and(|t| t <= pack.injections.max_tokens),
            FaultCode::V05,
            || format!("injection {i} has about {tokens} tokens; at most {}", pack.injections.max_tokens),
        );
        let clean = !injection.text.contains(['<', '>']) && !injection.text.trim().is_empty();
        faults.require(clean, FaultCode::V05, || format!("injection {i} is empty or has tags"));
    }
    for (i, pair) in record.context_injections.windows(2).enumerate() {
        if let [a, b] = pair {
            let gap = b.after_turn.checked_sub(a.after_turn);
            faults.require(gap.is_some_and(|g| g == 0 || g >= pack.injections.min_turn_gap), FaultCode::V04, || {
                format!(
                    "injections {i} and {} are after turns {} and {}; wanted: ascending, at the same turn or at least \
                     {} apart",
                    i + 1,
                    a.after_turn,
                    b.after_turn,
                    pack.injections.min_turn_gap
                )
            });
        }
    }
    let same = record.context_injections.chunk_by(|a, b| a.after_turn == b.after_turn);
    for run in same.filter(|run| run.len() > MAX_AT_A_TURN) {
        faults.require(false, FaultCode::V04, || {
            format!("{} injections are after turn {:?}", run.len(), run.first().map(|i| i.after_turn))
        });
    }
}

fn placement(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    for (i, injection) in record.context_injections.iter().enumerate() {
        if placement_of(record, injection.after_turn) != Some(Placement::Reactive) {
            continue;
        }
        let turn = usize::try_from(injection.after_turn).ok().and_then(|at| record.turns.get(at));
        let text = turn.map(|t| t.text.to_lowercase()).unwrap_or_default();
        faults.require(
            pack.injections.hedge_cues.iter().any(|cue| text.contains(cue)),
            FaultCode::V06,
            || format!("injection {i} is after an agent turn that is no hedge: {text:?}"),
        );
    }
}

fn sections(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let lines = brief::parse(&record.text_prompt).unwrap_or_default();
    let labels: Vec<&str> = lines.iter().map(|(label, _)| *label).collect();
    faults.require(labels == pack.prompt_sections, FaultCode::V07, || {
        format!("the sections are {labels:?}, not {:?}", pack.prompt_sections)
    });
    for (section, range) in [("KNOWN", pack.sections.known.facts), ("UNKNOWN", pack.sections.unknown.facts)] {
        let body = lines.iter().find(|(label, _)| *label == section).map_or("", |(_, body)| body);
        let count = body.split(FACT_SEPARATOR).filter(|fact| !fact.trim().is_empty()).count();
        let [low, high] = range;
        faults.require(u32::try_from(count).is_ok_and(|c| (low..=high).contains(&c)), FaultCode::V07, || {
            format!("{section} has {count} facts, not {low} to {high}")
        });
    }
    let tokens = estimate_tokens(&record.text_prompt);
    faults.require(tokens <= MAX_BRIEF_TOKENS, FaultCode::V07, || {
        format!("the brief has about {tokens} tokens; at most {MAX_BRIEF_TOKENS}")
    });
}

fn compliance(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let said: Vec<String> =
        record.turns.iter().filter(|t| t.speaker == Speaker::Agent).map(|t| t.text.to_lowercase()).collect();
    for text in &pack.compliance.must_say {
        faults.require(said.iter().any(|s| s.contains(text)), FaultCode::V13, || {
            format!("the agent never says {text:?}")
        });
    }
    for text in &pack.compliance.must_not_say {
        faults.require(!said.iter().any(|s| s.contains(text)), FaultCode::V13, || {
            format!("the agent says {text:?}")
        });
    }
}

/// V12: what a writing model's reason to stop says about its answer; `None` when the answer is whole.
#[must_use]
pub fn answer_fault(stop_reason: &str) -> Option<RecordFault> {
    let detail = match stop_reason {
        "max_tokens" => "the model stopped at its limit of tokens: the answer is cut",
        "refusal" => "the model refused to write this dialogue",
        _ => return None,
    };
    Some(RecordFault { code: FaultCode::V12, detail: detail.into() })
}

/// Upper guess of the text tokens of a text: pieces of a word have about five letters, digits stand alone.
#[must_use]
pub fn estimate_tokens(text: &str) -> usize {
    text.split_whitespace()
        .map(|word| {
            let letters = word.chars().filter(|c| c.is_alphabetic()).count();
            let others = word.chars().count() - letters;
            letters.div_ceil(5) + others
        })
        .sum()
}

#[cfg(test)]
mod tests;
