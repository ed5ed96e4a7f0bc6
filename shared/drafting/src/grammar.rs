//! The offline generator: a dialogue from the phrases of a pack, the same for the same (pack, design row, seed).
//!
//! A dialogue is a list of beats. Two texts of the same speaker in a row become one turn, so speakers always alternate.
//! The agent says only what the brief, earlier turns and earlier injections hold: the pack's templates are checked for
//! it, and [`crate::validate`] checks every record again.

use std::collections::BTreeMap;

use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DialogueRecord, Speaker, Turn};
use domain::injection::{Injection, Placement};
use domain::pack::{AxisValue, DomainPack, Exchange, INJECTION_AXIS, InjectedFact, OUTCOME_AXIS, When};

use crate::brief;
use crate::error::DraftError;
use crate::rng::Stream;
use crate::sampler::Design;
use crate::slots::Filler;

/// Name of this generator in records.
pub const MODEL: &str = "offline-grammar";

/// Orders of the beats that are tried for one number of exchanges.
const ORDERS: usize = 8;

/// Part of a dialogue after the opening.
#[derive(Debug, Clone, Copy)]
enum Beat<'a> {
    /// The agent asks, the user answers; with its position in the pack.
    Exchange(usize, &'a Exchange),
    /// The user asks, an injection brings the answer.
    Fact(&'a InjectedFact, Placement),
    /// The user asks, nothing brings the answer.
    Unanswered(&'a InjectedFact),
}

/// Writes the dialogue of one design row.
///
/// # Errors
/// When the row does not exist or the pack has too few phrases for it.
pub fn generate(
    pack: &DomainPack,
    design: &Design,
    row: u32,
    seed: u64,
) -> Result<DialogueRecord, DraftError> {
    let no_row = || DraftError::NoRow { row, rows: design.rows() };
    let levels = design.levels(row).ok_or_else(no_row)?;
    let chosen: BTreeMap<String, String> = design.values(pack, row).ok_or_else(no_row)?;
    let values: Vec<&AxisValue> =
        pack.axes.iter().zip(levels).filter_map(|(axis, level)| axis.values.get(level)).collect();
    let stream = Stream::new(seed, &["dialogue", &pack.id, design.id(), &row.to_string()]);
    let mut writer = Writer {
        pack,
        filler: Filler::new(&pack.grammar, &values, stream),
        chosen: &chosen,
        turns: Vec::new(),
        injections: Vec::new(),
    };
    let target = values.iter().filter_map(|v| v.turns).max().unwrap_or(0).max(pack.call.min_turns);
    let (beats, unknown) = writer.plan(usize::try_from(target).unwrap_or(usize::MAX))?;
    writer.perform(&beats)?;
    let text_prompt = brief::write(pack, &mut writer.filler, &unknown)?;
    let Writer { turns, injections, .. } = writer;
    Ok(DialogueRecord {
        id: format!("{}-{}-{row:05}", pack.short, design.id().get(..8).unwrap_or_default()),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: pack.id.clone(),
        text_prompt,
        turns,
        context_injections: injections,
        seed: chosen,
        design: design.row(row),
        model: MODEL.into(),
        cost_microusd: 0,
    })
}

/// Number of injections that the row of a record asks for.
#[must_use]
pub fn injections_wanted(chosen: &BTreeMap<String, String>) -> usize {
    chosen.get(INJECTION_AXIS).and_then(|n| n.parse().ok()).unwrap_or(0)
}

struct Writer<'a> {
    pack: &'a DomainPack,
    filler: Filler<'a>,
    chosen: &'a BTreeMap<String, String>,
    turns: Vec<Turn>,
    injections: Vec<Injection>,
}

impl<'a> Writer<'a> {
    fn applies(&self, when: &When) -> bool {
        when.iter().all(|(axis, levels)| self.chosen.get(axis).is_some_and(|v| levels.contains(v)))
    }

    /// The beats in order, and the names of the facts that the agent lacks at the start.
    fn plan(&mut self, target: usize) -> Result<(Vec<Beat<'a>>, Vec<&'a str>), DraftError> {
        let grammar = &self.pack.grammar;
        let count = injections_wanted(self.chosen);
        let mut facts: Vec<&InjectedFact> = grammar.facts.iter().filter(|f| self.applies(&f.when)).collect();
        self.filler.stream().shuffle(&mut facts);
        // Questions that stay open teach the agent not to guess; long dialogues have enough turns without them.
        let open = if count <= 3 && facts.len() > count { 1 } else { 0 };
        let mut asked: Vec<Beat> =
            self.placements(count).into_iter().zip(&facts).map(|(p, f)| Beat::Fact(f, p)).collect();
        asked.extend(facts.iter().skip(count).take(open).map(|f| Beat::Unanswered(f)));
        let unknown = self.unknown(&facts, count + open);
        let exchanges = self.exchanges(false);
        let mut lead = self.exchanges(true);
        self.filler.stream().shuffle(&mut lead);
        lead.truncate(1);
        Ok((self.arrange(&lead, &asked, &exchanges, target)?, unknown))
    }

    /// The exchanges that apply, in the order of the pack.
    fn exchanges(&self, leads: bool) -> Vec<Beat<'a>> {
        let all = self.pack.grammar.exchanges.iter().enumerate();
        all.filter(|(_, e)| e.leads == leads && self.applies(&e.when))
            .map(|(i, e)| Beat::Exchange(i, e))
            .collect()
    }

    /// The shortest order that reaches the target, with as few exchanges as that takes.
    fn arrange(
        &mut self,
        lead: &[Beat<'a>],
        asked: &[Beat<'a>],
        exchanges: &[Beat<'a>],
        target: usize,
    ) -> Result<Vec<Beat<'a>>, DraftError> {
        let (min, max) = (self.pack.call.min_turns, self.pack.call.max_turns);
        let fits = target..=usize::try_from(max).unwrap_or(usize::MAX);
        let mut longest = 0;
        for more in 0..=exchanges.len() {
            let mut best: Option<(usize, Vec<Beat>)> = None;
            // Turns merge differently in another order.
            for _ in 0..ORDERS {
                let mixed = self.mix(asked, exchanges, more);
                let beats: Vec<Beat> = lead.iter().copied().chain(mixed).collect();
                let turns = self.count_turns(&beats);
                longest = longest.max(turns);
                if fits.contains(&turns) && best.as_ref().is_none_or(|(least, _)| turns < *least) {
                    best = Some((turns, beats));
                }
            }
            if let Some((_, beats)) = best {
                return Ok(beats);
            }
        }
        Err(DraftError::Turns { turns: longest, min, max })
    }

    /// Proactive or reactive for each injection; the share is met on average over many dialogues.
    fn placements(&mut self, count: usize) -> Vec<Placement> {
        let exact = self.pack.injections.proactive_share * count as f64;
        let stream = self.filler.stream();
        let proactive = exact.floor() as usize + usize::from(stream.unit() < exact.fract());
        let kind = |i| if i < proactive { Placement::Proactive } else { Placement::Reactive };
        let mut placements: Vec<Placement> = (0..count).map(kind).collect();
        stream.shuffle(&mut placements);
        placements
    }

    /// Names for the UNKNOWN line: what will be asked comes first, and the list need not be complete.
    fn unknown(&mut self, facts: &[&'a InjectedFact], asked: usize) -> Vec<&'a str> {
        let [low, high] = self.pack.sections.unknown.facts.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let length = asked.clamp(low, high);
        let mut named: Vec<&str> = facts.iter().take(asked.max(length)).map(|f| f.unknown.as_str()).collect();
        self.filler.stream().shuffle(&mut named);
        named.truncate(length);
        named
    }

    /// Puts `more` of the exchanges, in the order of the pack, between the questions of the user.
    fn mix(&mut self, asked: &[Beat<'a>], exchanges: &[Beat<'a>], more: usize) -> Vec<Beat<'a>> {
        let stream = self.filler.stream();
        let mut chosen: Vec<usize> = (0..exchanges.len()).collect();
        stream.shuffle(&mut chosen);
        chosen.truncate(more);
        chosen.sort_unstable();
        let mut order: Vec<bool> =
            std::iter::repeat_n(true, more).chain(std::iter::repeat_n(false, asked.len())).collect();
        stream.shuffle(&mut order);
        let mut exchanges = chosen.into_iter().filter_map(|i| exchanges.get(i).copied());
        let mut asked = asked.iter().copied();
        order
            .into_iter()
            .filter_map(|is_exchange| if is_exchange { exchanges.next() } else { asked.next() })
            .collect()
    }

    /// Turns of the whole dialogue with these beats.
    fn count_turns(&self, beats: &[Beat]) -> usize {
        let mut turns = self.pack.grammar.opening.len();
        let mut user_last = true;
        for beat in beats {
            let (by_user_first, texts, ends_with_user) = match beat {
                Beat::Exchange(..) => (false, 2, true),
                Beat::Fact(_, Placement::Reactive) => (true, 4, false),
                Beat::Fact(_, Placement::Proactive) | Beat::Unanswered(_) => (true, 2, false),
            };
            turns += texts - usize::from(by_user_first == user_last);
            user_last = ends_with_user;
        }
        // Ending and closing: agent, user, agent, user.
        turns + 4 - usize::from(!user_last)
    }

    fn perform(&mut self, beats: &[Beat<'a>]) -> Result<(), DraftError> {
        use Speaker::{Agent, User};
        let grammar = &self.pack.grammar;
        let mut speaker = self.pack.call.initiator;
        for (i, variants) in grammar.opening.iter().enumerate() {
            self.say(speaker, &format!("opening {i}"), variants)?;
            speaker = if speaker == Agent { User } else { Agent };
        }
        for beat in beats {
            match beat {
                Beat::Exchange(i, exchange) => {
                    self.say(Agent, &format!("agent {i}"), &exchange.agent)?;
                    self.say(User, &format!("user {i}"), &exchange.user)?;
                }
                Beat::Fact(fact, placement) => {
                    self.say(User, &format!("probe {}", fact.id), &fact.probe)?;
                    if *placement == Placement::Reactive {
                        self.say(Agent, "hedges", &grammar.hedges)?;
                    }
                    self.inject(fact)?;
                    if *placement == Placement::Reactive {
                        self.say(User, "waits", &grammar.waits)?;
                    }
                    self.say(Agent, &format!("reply {}", fact.id), &fact.reply)?;
                }
                Beat::Unanswered(fact) => {
                    self.say(User, &format!("probe {}", fact.id), &fact.probe)?;
                    self.say(Agent, "unanswered", &grammar.unanswered)?;
                }
            }
        }
        let outcome = self.chosen.get(OUTCOME_AXIS);
        if let Some(ending) = grammar.endings.iter().find(|e| Some(&e.outcome) == outcome) {
            self.say(Agent, "ending agent", &ending.agent)?;
            self.say(User, "ending user", &ending.user)?;
        }
        self.say(Agent, "closing agent", &grammar.closing.agent)?;
        self.say(User, "closing user", &grammar.closing.user)
    }

    /// Adds to the last turn when the same speaker goes on.
    fn say(&mut self, speaker: Speaker, list: &str, variants: &[String]) -> Result<(), DraftError> {
        let text = self.filler.say(list, variants)?;
        match self.turns.last_mut() {
            Some(turn) if turn.speaker == speaker => {
                turn.text.push(' ');
                turn.text.push_str(&text);
            }
            _ => {
                let index = u32::try_from(self.turns.len()).unwrap_or(u32::MAX);
                self.turns.push(Turn { index, speaker, text });
            }
        }
        Ok(())
    }

    fn inject(&mut self, fact: &InjectedFact) -> Result<(), DraftError> {
        let text = self.filler.say(&format!("inject {}", fact.id), &fact.inject)?;
        let after_turn = self.turns.last().map_or(0, |turn| turn.index);
        self.injections.push(Injection { after_turn, text, frame_offset: None });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
