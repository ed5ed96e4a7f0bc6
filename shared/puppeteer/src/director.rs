//! The rules of a puppeteer, without time or network: when to look at the conversation, and what of an advice is
//! injected. Counted in conversation frames.

use std::collections::{HashSet, VecDeque};

use domain::frame::MS_PER_FRAME;
use domain::puppeteer::{PuppeteerOutcome, PuppeteerSpec, ScheduledContext};

use crate::relevance::{overlap, words};

/// New words that are worth a look.
const NEW_WORDS: usize = 4;
/// Frames without a word that count as a pause (0.48 s).
const PAUSE_FRAMES: u64 = 6;
/// A look at the latest after this many frames with new words (3.2 s): an agent that never stops talking is looked at too.
const LONGEST_WAIT: u64 = 40;
/// What is remembered of the conversation, words.
const MEMORY_WORDS: usize = 160;
/// Texts whose words overlap by more say the same.
const SAME: f64 = 0.8;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The model.
    Agent,
    /// The caller, from a transcriber.
    User,
}

/// One frame of the conversation, as far as a puppeteer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Conversation frame.
    pub frame: u64,
    /// Who.
    pub speaker: Speaker,
    /// What was said in it; empty in most frames. Hidden text is never in it.
    pub text: String,
}

/// What a look at the conversation is based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Conversation frame.
    pub frame: u64,
    /// The conversation of the last minute or so, a line for each change of speaker.
    pub said: String,
    /// The newest words alone.
    pub newest: String,
}

/// Something to inject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// The text; empty = nothing.
    pub text: String,
    /// Facts that it holds.
    pub facts: Vec<String>,
    /// Why.
    pub reason: String,
}

/// Decides when to look and what passes.
pub struct Director {
    spec: PuppeteerSpec,
    schedule: VecDeque<ScheduledContext>,
    memory: VecDeque<(Speaker, String)>,
    new_words: usize,
    /// Frame of the newest word, and of the oldest that no look has covered.
    last_word: u64,
    waiting_since: u64,
    now: u64,
    used: HashSet<String>,
    told: Vec<String>,
    last_injection: Option<u64>,
    count: u32,
}

impl Director {
    /// Rules for one session.
    #[must_use]
    pub fn new(spec: PuppeteerSpec) -> Self {
        let mut schedule = spec.schedule.clone();
        schedule.sort_by_key(|item| item.frame);
        Self {
            schedule: schedule.into(),
            spec,
            memory: VecDeque::new(),
            new_words: 0,
            last_word: 0,
            waiting_since: 0,
            now: 0,
            used: HashSet::new(),
            told: Vec::new(),
            last_injection: None,
            count: 0,
        }
    }

    /// Takes one frame in.
    pub fn hear(&mut self, heard: Heard) {
        self.now = self.now.max(heard.frame);
        if heard.text.trim().is_empty() {
            return;
        }
        match self.memory.back_mut() {
            Some((speaker, text)) if *speaker == heard.speaker => text.push_str(&heard.text),
            _ => self.memory.push_back((heard.speaker, heard.text.clone())),
        }
        if self.new_words == 0 {
            self.waiting_since = self.now;
        }
        self.new_words += heard.text.split_whitespace().count().max(usize::from(heard.text.starts_with(' ')));
        self.last_word = self.now;
        self.forget();
    }

    /// Keeps the newest words.
    fn forget(&mut self) {
        let count = |text: &str| text.split_whitespace().count();
        let mut total: usize = self.memory.iter().map(|(_, text)| count(text)).sum();
        while self.memory.len() > 1 && total > MEMORY_WORDS {
            total -= self.memory.pop_front().map_or(0, |(_, text)| count(&text));
        }
        if let Some((_, text)) = self.memory.front_mut()
            && total > 2 * MEMORY_WORDS
        {
            let kept: Vec<_> = text.split_whitespace().skip(total - MEMORY_WORDS).collect();
            *text = kept.join(" ");
        }
    }

    /// The next text of the schedule whose frame has come.
    pub fn scheduled(&mut self) -> Option<ScheduledContext> {
        (self.schedule.front()?.frame <= self.now).then(|| self.schedule.pop_front()).flatten()
    }

    /// A look, when enough was said and there is a pause, or the conversation has gone on for long.
    pub fn look(&mut self) -> Option<Look> {
        let paused = self.now >= self.last_word + PAUSE_FRAMES;
        let long = self.now >= self.waiting_since + LONGEST_WAIT;
        if self.new_words < NEW_WORDS || !(paused || long) {
            return None;
        }
        let newest = std::mem::take(&mut self.new_words);
        self.waiting_since = self.now;
        let said = self.said();
        let all: Vec<_> = self.memory.iter().flat_map(|(_, text)| text.split_whitespace()).collect();
        let newest = all[all.len().saturating_sub(newest.max(12))..].join(" ");
        Some(Look { frame: self.now, said, newest })
    }

    fn said(&self) -> String {
        let line = |(speaker, text): &(Speaker, String)| {
            let name = if *speaker == Speaker::Agent { "AGENT" } else { "CALLER" };
            format!("{name}: {}", text.trim())
        };
        self.memory.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Texts injected so far.
    #[must_use]
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// Whether the limits let another injection of its own in now.
    #[must_use]
    pub fn may_inject(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "frames of a call")]
        let gap = |at: u64| (self.now - at) as f64 * MS_PER_FRAME as f64 / 1e3 >= self.spec.min_gap_s;
        self.count < self.spec.max_injections && self.last_injection.is_none_or(gap)
    }

    /// Judges an advice; [`PuppeteerOutcome::Injected`] means: inject it, then call [`Director::injected`].
    #[must_use]
    pub fn judge(&self, advice: &Advice) -> PuppeteerOutcome {
        let known = |text: &str| self.told.iter().any(|told| overlap(told, text) > SAME);
        if words(&advice.text).is_empty() {
            PuppeteerOutcome::Nothing
        } else if (!advice.facts.is_empty() && advice.facts.iter().all(|id| self.used.contains(id)))
            || known(&advice.text)
        {
            PuppeteerOutcome::Duplicate
        } else if self.may_inject() {
            PuppeteerOutcome::Injected
        } else {
            PuppeteerOutcome::Capped
        }
    }

    /// The queue has taken an advice.
    pub fn injected(&mut self, advice: &Advice) {
        self.used.extend(advice.facts.iter().cloned());
        self.told.push(advice.text.clone());
        self.last_injection = Some(self.now);
        self.count += 1;
    }

    /// Whether a fact was injected before.
    #[must_use]
    pub fn has_used(&self, fact: &str) -> bool {
        self.used.contains(fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(frame: u64, text: &str) -> Heard {
        Heard { frame, speaker: Speaker::Agent, text: text.into() }
    }

    fn advice(fact: &str, text: &str) -> Advice {
        Advice { text: text.into(), facts: vec![fact.into()], reason: String::new() }
    }

    #[test]
    fn it_looks_in_a_pause_after_some_words_and_does_not_wait_forever_for_one() {
        let mut director = Director::new(PuppeteerSpec::default());
        director.hear(agent(0, " hello there"));
        director.hear(agent(20, ""));
        assert_eq!(director.look(), None, "two words are too few");
        director.hear(agent(21, " how may I help"));
        assert_eq!(director.look(), None, "still talking");
        director.hear(agent(27, ""));
        let look = director.look().expect("a pause");
        assert_eq!((look.frame, look.said.as_str()), (27, "AGENT: hello there how may I help"));
        assert_eq!(director.look(), None, "nothing new");
        for frame in 30..90 {
            director.hear(agent(frame, " word"));
            if director.look().is_some() {
                assert!(frame >= 70, "{frame}");
                return;
            }
        }
        panic!("no look at an agent that never stops");
    }

    #[test]
    fn a_fact_is_told_once_and_so_is_a_text_in_other_order() {
        let mut director = Director::new(PuppeteerSpec { min_gap_s: 0.0, ..PuppeteerSpec::default() });
        let first = advice("a", "Claim 88 was paid on Monday.");
        assert_eq!(director.judge(&first), PuppeteerOutcome::Injected);
        director.injected(&first);
        assert_eq!(director.judge(&advice("a", "Anything else")), PuppeteerOutcome::Duplicate);
        assert_eq!(director.judge(&advice("b", "On Monday claim 88 was paid")), PuppeteerOutcome::Duplicate);
        assert_eq!(director.judge(&advice("b", "Policy 2266 renews.")), PuppeteerOutcome::Injected);
        assert_eq!(director.judge(&advice("c", " ... ")), PuppeteerOutcome::Nothing);
    }

    #[test]
    fn caps_hold_for_its_own_injections_and_the_gap_passes_with_the_frames() {
        let spec = PuppeteerSpec { max_injections: 2, min_gap_s: 4.0, ..PuppeteerSpec::default() };
        let mut director = Director::new(spec);
        director.hear(agent(10, " one"));
        director.injected(&advice("a", "first thing"));
        director.hear(agent(59, ""));
        assert_eq!(director.judge(&advice("b", "second thing")), PuppeteerOutcome::Capped, "3.92 s");
        director.hear(agent(60, ""));
        assert_eq!(director.judge(&advice("b", "second thing")), PuppeteerOutcome::Injected);
        director.injected(&advice("b", "second thing"));
        director.hear(agent(1_000, ""));
        assert_eq!(director.judge(&advice("c", "third point")), PuppeteerOutcome::Capped);
    }

    #[test]
    fn the_schedule_comes_in_the_order_of_its_frames_and_not_before_them() {
        let item = |frame, text: &str| ScheduledContext { frame, text: text.into() };
        let schedule = vec![item(20, "second"), item(10, "first")];
        let mut director = Director::new(PuppeteerSpec { schedule, ..PuppeteerSpec::default() });
        director.hear(agent(9, ""));
        assert_eq!(director.scheduled(), None);
        director.hear(agent(25, ""));
        let texts: Vec<_> = std::iter::from_fn(|| director.scheduled()).map(|item| item.text).collect();
        assert_eq!(texts, ["first", "second"]);
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_the_newest() {
        let mut director = Director::new(PuppeteerSpec::default());
        for n in 0..5_000 {
            director.hear(agent(n, &format!(" word{n}")));
        }
        let said = director.said();
        assert!(said.split_whitespace().count() <= 2 * MEMORY_WORDS + 2);
        assert!(said.ends_with("word4999"));
    }
}
