//! Checks of the phrases: slots exist, conditions name levels, agents say only what they may know.

use std::collections::BTreeSet;

use super::Faults;
use crate::dialogue::Speaker;
use crate::pack::{DomainPack, INJECTION_AXIS, OUTCOME_AXIS, Piece, SlotKind, When, pieces, slot_names};

/// Longest injected text, in words: fits 50 tokens with its tags.
const MAX_INJECTION_WORDS: usize = 25;

/// Names that templates may use, by what they may be used for.
struct Names {
    /// Every slot and phrase list.
    all: BTreeSet<String>,
    /// Those an agent may say before any injection: phrase lists and the slots of the brief.
    agent: BTreeSet<String>,
}

pub(super) fn check(pack: &DomainPack, faults: &mut Faults) {
    let names = names(pack, faults);
    slots(pack, faults);
    let grammar = &pack.grammar;
    let mut texts = Texts { names: &names, faults };
    for (section, text) in &grammar.brief.lines {
        texts.one(text, &format!("/grammar/brief/lines/{section}"), &names.all);
    }
    texts.list(&grammar.brief.known, "/grammar/brief/known", &names.all);
    texts.optional(&grammar.brief.known_extra, "/grammar/brief/known_extra", &names.all);
    for (i, variants) in grammar.opening.iter().enumerate() {
        let by_agent = i.is_multiple_of(2) == (pack.call.initiator == Speaker::Agent);
        let at = format!("/grammar/opening/{i}");
        if by_agent { texts.agent(variants, &at) } else { texts.list(variants, &at, &names.all) }
    }
    for (i, exchange) in grammar.exchanges.iter().enumerate() {
        texts.agent(&exchange.agent, &format!("/grammar/exchanges/{i}/agent"));
        texts.list(&exchange.user, &format!("/grammar/exchanges/{i}/user"), &names.all);
    }
    texts.facts(pack);
    texts.agent(&grammar.hedges, "/grammar/hedges");
    for (i, hedge) in grammar.hedges.iter().enumerate() {
        let hedge = hedge.to_lowercase();
        if !pack.injections.hedge_cues.iter().any(|cue| hedge.contains(cue)) {
            texts
                .faults
                .add(format!("/grammar/hedges/{i}"), "has none of the texts of /injections/hedge_cues");
        }
    }
    texts.list(&grammar.waits, "/grammar/waits", &names.all);
    texts.agent(&grammar.unanswered, "/grammar/unanswered");
    for (i, ending) in grammar.endings.iter().enumerate() {
        texts.agent(&ending.agent, &format!("/grammar/endings/{i}/agent"));
        texts.list(&ending.user, &format!("/grammar/endings/{i}/user"), &names.all);
    }
    texts.agent(&grammar.closing.agent, "/grammar/closing/agent");
    texts.list(&grammar.closing.user, "/grammar/closing/user", &names.all);
    shape(pack, faults);
    conditions(pack, faults);
}

fn names(pack: &DomainPack, faults: &mut Faults) -> Names {
    let mut phrases: BTreeSet<String> = pack.grammar.phrases.keys().cloned().collect();
    let mut slots: BTreeSet<String> = BTreeSet::new();
    for (i, slot) in pack.grammar.slots.iter().enumerate() {
        if !slots.insert(slot.name.clone()) {
            faults.add(format!("/grammar/slots/{i}/name"), format!("{:?} is a slot already", slot.name));
        }
    }
    for (i, axis) in pack.axes.iter().enumerate() {
        let sets: BTreeSet<&String> = axis.values.iter().flat_map(|v| v.set.keys()).collect();
        let lists: BTreeSet<&String> = axis.values.iter().flat_map(|v| v.phrases.keys()).collect();
        for (j, value) in axis.values.iter().enumerate() {
            let texts = value.set.values().flat_map(|t| t.texts()).chain(value.phrases.values().flatten());
            for text in texts.filter(|t| t.trim().is_empty() || t.contains(['{', '}'])) {
                faults.add(format!("/axes/{i}/values/{j}"), format!("{text:?} is empty or has braces"));
            }
            for name in sets.iter().filter(|n| value.set.get(**n).is_none_or(|t| t.texts().is_empty())) {
                faults.add(format!("/axes/{i}/values/{j}/set"), format!("lacks {name:?}, which others have"));
            }
            for name in lists.iter().filter(|n| value.phrases.get(**n).is_none_or(Vec::is_empty)) {
                faults.add(
                    format!("/axes/{i}/values/{j}/phrases"),
                    format!("lacks {name:?}, which others have"),
                );
            }
        }
        slots.extend(sets.into_iter().cloned());
        phrases.extend(lists.into_iter().cloned());
    }
    let brief = &pack.grammar.brief;
    let mut agent = phrases.clone();
    for text in brief.lines.values().chain(&brief.known) {
        agent.extend(slot_names(text).into_iter().map(str::to_owned));
    }
    Names { all: slots.union(&phrases).cloned().collect(), agent }
}

fn slots(pack: &DomainPack, faults: &mut Faults) {
    let mut before: Vec<&str> = Vec::new();
    for (i, slot) in pack.grammar.slots.iter().enumerate() {
        let at = format!("/grammar/slots/{i}/is");
        let range = |min: u64, max: u64, step: u64| min <= max && step > 0;
        let fine = match &slot.is {
            SlotKind::Pick(texts) => !texts.is_empty(),
            SlotKind::Number { min, max, step } => range(*min, *max, *step),
            SlotKind::Money { min_cents, max_cents, step_cents } => {
                range(*min_cents, *max_cents, *step_cents)
            }
            SlotKind::Raised { money, percent } => {
                before.contains(&money.as_str()) && before.contains(&percent.as_str())
            }
            SlotKind::Share { money, min_percent, max_percent } => {
                before.contains(&money.as_str()) && min_percent <= max_percent
            }
            SlotKind::Later { date, days } => {
                before.contains(&date.as_str()) && before.contains(&days.as_str())
            }
            SlotKind::Date { .. } => true,
            SlotKind::Pattern(pattern) => pattern.contains('#'),
        };
        faults.require(fine, &at, || format!("is empty, reversed or refers to a later slot: {:?}", slot.is));
        before.push(&slot.name);
    }
}

fn shape(pack: &DomainPack, faults: &mut Faults) {
    let grammar = &pack.grammar;
    let user_last = grammar.opening.len().is_multiple_of(2) == (pack.call.initiator == Speaker::Agent);
    faults.require(!grammar.opening.is_empty() && user_last, "/grammar/opening", || {
        format!("the user must have the last of its turns; there are {}", grammar.opening.len())
    });
    for section in pack.prompt_sections.iter().filter(|s| !matches!(s.as_str(), "KNOWN" | "UNKNOWN")) {
        faults.require(grammar.brief.lines.contains_key(section), "/grammar/brief/lines", || {
            format!("lacks the section {section:?}")
        });
    }
    let [low, high] = pack.sections.known.facts.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let known = grammar.brief.known.len();
    faults.require(
        known <= high && known + grammar.brief.known_extra.len() >= low,
        "/grammar/brief/known",
        || format!("{known} facts for every dialogue do not fit {low} to {high}"),
    );
    let most = pack.axis(INJECTION_AXIS).map_or(0, |(_, axis)| {
        axis.values.iter().filter_map(|v| v.id.parse::<usize>().ok()).max().unwrap_or(0)
    });
    let always = grammar.facts.iter().filter(|f| f.when.is_empty()).count();
    faults.require(always > most, "/grammar/facts", || {
        format!("{always} facts apply always; there must be more than the {most} injections of a dialogue")
    });
    if let Some((_, axis)) = pack.axis(OUTCOME_AXIS) {
        for value in &axis.values {
            let count = grammar.endings.iter().filter(|e| e.outcome == value.id).count();
            faults.require(count == 1, "/grammar/endings", || {
                format!("the outcome {:?} has {count} endings instead of one", value.id)
            });
        }
    }
}

fn conditions(pack: &DomainPack, faults: &mut Faults) {
    let exchanges = pack.grammar.exchanges.iter().map(|e| &e.when).enumerate();
    let facts = pack.grammar.facts.iter().map(|f| &f.when).enumerate();
    let mut check = |when: &When, at: String| {
        for (name, levels) in when {
            let Some((_, axis)) = pack.axis(name) else {
                faults.add(at.clone(), format!("{name:?} is no axis"));
                continue;
            };
            for level in levels.iter().filter(|l| axis.values.iter().all(|v| v.id != **l)) {
                faults.add(format!("{at}/{name}"), format!("{level:?} is no level of this axis"));
            }
        }
    };
    for (i, when) in exchanges {
        check(when, format!("/grammar/exchanges/{i}/when"));
    }
    for (i, when) in facts {
        check(when, format!("/grammar/facts/{i}/when"));
    }
}

struct Texts<'a> {
    names: &'a Names,
    faults: &'a mut Faults,
}

impl Texts<'_> {
    fn one(&mut self, text: &str, at: &str, allowed: &BTreeSet<String>) {
        if let Err(detail) = pieces(text) {
            self.faults.add(at, detail);
        }
        if text.trim().is_empty() {
            self.faults.add(at, "must not be empty");
        }
        for name in slot_names(text) {
            if !self.names.all.contains(name) {
                self.faults.add(at, format!("{name:?} is neither a slot nor a phrase list"));
            } else if !allowed.contains(name) {
                self.faults.add(at, format!("the agent cannot know {name:?} here: it is not in the brief"));
            }
        }
    }

    fn optional(&mut self, texts: &[String], at: &str, allowed: &BTreeSet<String>) {
        for (i, text) in texts.iter().enumerate() {
            self.one(text, &format!("{at}/{i}"), allowed);
        }
    }

    fn list(&mut self, texts: &[String], at: &str, allowed: &BTreeSet<String>) {
        if texts.is_empty() {
            self.faults.add(at, "must not be empty");
        }
        self.optional(texts, at, allowed);
    }

    /// What an agent says without an injection: its slots are in the brief, and figures come only in slots.
    fn agent(&mut self, texts: &[String], at: &str) {
        let names = self.names;
        self.list(texts, at, &names.agent);
        for (i, text) in texts.iter().enumerate() {
            let figures = |p: &Piece| matches!(p, Piece::Text(t) if t.contains(|c: char| c.is_ascii_digit()));
            if pieces(text).is_ok_and(|p| p.iter().any(figures)) {
                self.faults
                    .add(format!("{at}/{i}"), "has figures outside slots, which the brief may not hold");
            }
        }
    }

    fn facts(&mut self, pack: &DomainPack) {
        let names = self.names;
        let mut ids = BTreeSet::new();
        for (i, fact) in pack.grammar.facts.iter().enumerate() {
            let at = format!("/grammar/facts/{i}");
            if !ids.insert(&fact.id) {
                self.faults.add(format!("{at}/id"), format!("{:?} names another fact too", fact.id));
            }
            self.list(&fact.probe, &format!("{at}/probe"), &names.all);
            self.list(&fact.inject, &format!("{at}/inject"), &names.all);
            let mut allowed = names.agent.clone();
            // Whatever variant was injected, the reply has its slots.
            let mut common: Option<BTreeSet<&str>> = None;
            for (j, text) in fact.inject.iter().enumerate() {
                let slots: BTreeSet<&str> = slot_names(text).into_iter().collect();
                common =
                    Some(common.map_or_else(|| slots.clone(), |c| c.intersection(&slots).copied().collect()));
                let words = text.split_whitespace().count();
                self.faults.require(words <= MAX_INJECTION_WORDS, &format!("{at}/inject/{j}"), || {
                    format!("must have at most {MAX_INJECTION_WORDS} words, not {words}")
                });
            }
            allowed.extend(common.unwrap_or_default().into_iter().map(str::to_owned));
            self.list(&fact.reply, &format!("{at}/reply"), &allowed);
        }
    }
}
