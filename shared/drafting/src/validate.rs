//! The rules that a record must keep (finetune.md 2.4). Every fault is collected, with a stable code.
//!
//! V09 and V10 need a judge and other records; V12 is about a hosted model's answer. V13 is ours: what the pack says
//! must and must not be said.

use std::collections::BTreeSet;

use domain::dialogue::{DialogueRecord, Speaker, is_record_id};
use domain::injection::Placement;
use domain::pack::DomainPack;

use crate::brief::{self, FACT_SEPARATOR};
use crate::claims::{Claim, claims};
use crate::grammar::injections_wanted;

/// Longest brief: each token is one 80 ms frame of the prefix.
const MAX_BRIEF_TOKENS: usize = 400;
/// Longest turn.
const MAX_TURN_WORDS: usize = 120;
/// Tokens of the tags around an injection.
const TAG_TOKENS: usize = 6;

/// A rule that a record breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFault {
    /// `V01` to `V13`.
    pub code: &'static str,
    /// Where, and what was expected.
    pub detail: String,
}

#[derive(Default)]
struct Faults(Vec<RecordFault>);

impl Faults {
    fn require(&mut self, holds: bool, code: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.0.push(RecordFault { code, detail: detail() });
        }
    }
}

/// Every rule that the record breaks; empty for a good one.
#[must_use]
pub fn faults(pack: &DomainPack, record: &DialogueRecord) -> Vec<RecordFault> {
    let mut faults = Faults::default();
    faults.require(is_record_id(&record.id), "V01", || format!("{:?} is no record id", record.id));
    turns(pack, record, &mut faults);
    texts(record, &mut faults);
    injections(pack, record, &mut faults);
    placement(pack, record, &mut faults);
    sections(pack, record, &mut faults);
    grounding(record, &mut faults);
    personal_data(record, &mut faults);
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
    faults.require((call.min_turns..=call.max_turns).contains(&count), "V01", || {
        format!("{count} turns; the domain wants {} to {}", call.min_turns, call.max_turns)
    });
    let first = record.turns.first().map(|t| t.speaker);
    faults.require(first == Some(call.initiator), "V01", || {
        format!("the first speaker is {first:?}, not {:?}", call.initiator)
    });
    for (i, turn) in record.turns.iter().enumerate() {
        faults.require(usize::try_from(turn.index) == Ok(i), "V01", || {
            format!("turn {i} has the index {}", turn.index)
        });
    }
    let most = if call.strict_alternation { 1 } else { 2 };
    for run in record.turns.chunk_by(|a, b| a.speaker == b.speaker).filter(|run| run.len() > most) {
        faults.require(false, "V02", || {
            format!("{} turns of the same speaker from turn {:?}", run.len(), run.first().map(|t| t.index))
        });
    }
    let words: usize = record.turns.iter().map(|t| t.text.split_whitespace().count()).sum();
    faults.require(u32::try_from(words).is_ok_and(|w| w <= call.max_words), "V01", || {
        format!("{words} words; at most {}", call.max_words)
    });
}

fn texts(record: &DialogueRecord, faults: &mut Faults) {
    for turn in &record.turns {
        let at = turn.index;
        let words = turn.text.split_whitespace().count();
        faults.require((1..=MAX_TURN_WORDS).contains(&words), "V03", || {
            format!("turn {at} has {words} words, not 1 to {MAX_TURN_WORDS}")
        });
        faults.require(turn.text.chars().any(char::is_alphanumeric), "V03", || {
            format!("turn {at} has nothing to say: {:?}", turn.text)
        });
        let forbidden = |c: char| "<>[]{}()*#_`|\\~".contains(c) || c.is_control();
        if let Some(found) = turn.text.chars().find(|c| forbidden(*c)) {
            faults.require(false, "V03", || format!("turn {at} has {found:?}"));
        }
        let label = turn.text.split_once(':').map(|(label, _)| label.trim().to_lowercase());
        let labelled = label.is_some_and(|l| {
            ["agent", "user", "broker", "client", "assistant", "system"].contains(&l.as_str())
                || l.starts_with("speaker ")
        });
        faults.require(!labelled, "V03", || format!("turn {at} starts with a speaker label"));
    }
}

fn injections(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let wanted = injections_wanted(&record.seed);
    let found = record.context_injections.len();
    faults.require(found == wanted, "V05", || format!("{found} injections; the design wants {wanted}"));
    for (i, injection) in record.context_injections.iter().enumerate() {
        let after = usize::try_from(injection.after_turn).unwrap_or(usize::MAX);
        faults.require(after.saturating_add(1) < record.turns.len(), "V04", || {
            format!("injection {i} is after turn {after} of {}", record.turns.len())
        });
        let used = record.turns.iter().skip(after.saturating_add(1)).any(|t| t.speaker == Speaker::Agent);
        faults.require(used, "V04", || format!("no agent turn follows injection {i}"));
        let tokens = estimate_tokens(&injection.text) + TAG_TOKENS;
        faults.require(u32::try_from(tokens).is_ok_and(|t| t <= pack.injections.max_tokens), "V05", || {
            format!("injection {i} has about {tokens} tokens; at most {}", pack.injections.max_tokens)
        });
        let clean = !injection.text.contains(['<', '>']) && !injection.text.trim().is_empty();
        faults.require(clean, "V05", || format!("injection {i} is empty or has tags"));
    }
    for (i, pair) in record.context_injections.windows(2).enumerate() {
        if let [a, b] = pair {
            let gap = b.after_turn.checked_sub(a.after_turn);
            faults.require(gap.is_some_and(|g| g >= pack.injections.min_turn_gap), "V04", || {
                format!("injections {i} and {} are after turns {} and {}", i + 1, a.after_turn, b.after_turn)
            });
        }
    }
}

fn placement(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    for (i, injection) in record.context_injections.iter().enumerate() {
        if placement_of(record, injection.after_turn) != Some(Placement::Reactive) {
            continue;
        }
        let turn = usize::try_from(injection.after_turn).ok().and_then(|at| record.turns.get(at));
        let text = turn.map(|t| t.text.to_lowercase()).unwrap_or_default();
        faults.require(pack.injections.hedge_cues.iter().any(|cue| text.contains(cue)), "V06", || {
            format!("injection {i} is after an agent turn that is no hedge: {text:?}")
        });
    }
}

fn sections(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let lines = brief::parse(&record.text_prompt).unwrap_or_default();
    let labels: Vec<&str> = lines.iter().map(|(label, _)| *label).collect();
    faults.require(labels == pack.prompt_sections, "V07", || {
        format!("the sections are {labels:?}, not {:?}", pack.prompt_sections)
    });
    for (section, range) in [("KNOWN", pack.sections.known.facts), ("UNKNOWN", pack.sections.unknown.facts)] {
        let body = lines.iter().find(|(label, _)| *label == section).map_or("", |(_, body)| body);
        let count = body.split(FACT_SEPARATOR).filter(|fact| !fact.trim().is_empty()).count();
        let [low, high] = range;
        faults.require(u32::try_from(count).is_ok_and(|c| (low..=high).contains(&c)), "V07", || {
            format!("{section} has {count} facts, not {low} to {high}")
        });
    }
    let tokens = estimate_tokens(&record.text_prompt);
    faults.require(tokens <= MAX_BRIEF_TOKENS, "V07", || {
        format!("the brief has about {tokens} tokens; at most {MAX_BRIEF_TOKENS}")
    });
}

/// Every claim of an agent turn is in the brief, an earlier turn or an injection that is over by then.
fn grounding(record: &DialogueRecord, faults: &mut Faults) {
    let mut known: BTreeSet<Claim> = brief::parse(&record.text_prompt)
        .unwrap_or_default()
        .into_iter()
        .filter(|(label, _)| *label != "UNKNOWN")
        .flat_map(|(_, body)| claims(body))
        .collect();
    let mut injections = record.context_injections.iter().peekable();
    for turn in &record.turns {
        while let Some(injection) = injections.next_if(|i| i.after_turn < turn.index) {
            known.extend(claims(&injection.text));
        }
        let stated = claims(&turn.text);
        if turn.speaker == Speaker::Agent {
            for claim in stated.iter().filter(|c| !c.is_supported_by(&known)) {
                faults.require(false, "V08", || {
                    format!("turn {} states {claim:?}, which nothing before it holds", turn.index)
                });
            }
        }
        known.extend(stated);
    }
}

/// Mail addresses, social security numbers and numbers as long as those of phones and cards.
fn personal_data(record: &DialogueRecord, faults: &mut Faults) {
    let texts = record
        .turns
        .iter()
        .map(|t| &t.text)
        .chain(record.context_injections.iter().map(|i| &i.text))
        .chain(std::iter::once(&record.text_prompt));
    for text in texts {
        for word in text.split_whitespace() {
            let digits = word.bytes().filter(u8::is_ascii_digit).count();
            let address = word.split_once('@').is_some_and(|(_, host)| host.contains('.'));
            faults.require(!address && digits < 9, "V11", || format!("{word:?} looks like personal data"));
        }
    }
}

fn compliance(pack: &DomainPack, record: &DialogueRecord, faults: &mut Faults) {
    let said: Vec<String> =
        record.turns.iter().filter(|t| t.speaker == Speaker::Agent).map(|t| t.text.to_lowercase()).collect();
    for text in &pack.compliance.must_say {
        faults.require(said.iter().any(|s| s.contains(text)), "V13", || {
            format!("the agent never says {text:?}")
        });
    }
    for text in &pack.compliance.must_not_say {
        faults.require(!said.iter().any(|s| s.contains(text)), "V13", || format!("the agent says {text:?}"));
    }
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
