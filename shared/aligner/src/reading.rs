//! What a voice really said of a script: a verdict for every word.

use crate::aligner::{WordTime, confidence};
use crate::script::Part;
use crate::trace::{Segment, Trace};

/// What became of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Said once, where it stands.
    Said,
    /// Said more than once.
    Repeated,
    /// Left out.
    Skipped,
    /// Not looked for: nothing to say, or sound that is too long or too short for it.
    Unknown,
}

/// A word on the path that was really said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard {
    /// Word of the script; `None` for speech that the script lacks.
    pub word: Option<usize>,
    /// Start, ms.
    pub start_ms: u64,
    /// End, ms.
    pub end_ms: u64,
    /// As in [`WordTime`].
    pub confidence: f32,
}

/// Times of the script's words with what was said.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// One for every word of the script, as if all were said once.
    pub words: Vec<WordTime>,
    /// One for every word of the script.
    pub verdicts: Vec<Verdict>,
    /// What was said, in order; empty when it was not looked for.
    pub heard: Vec<Heard>,
    /// Whether the words fit into the sound at all.
    pub aligned: bool,
}

impl Reading {
    pub(crate) fn unread(words: Vec<WordTime>) -> Self {
        let verdicts = vec![Verdict::Unknown; words.len()];
        Self { words, verdicts, heard: Vec::new(), aligned: false }
    }

    pub(crate) fn new(
        words: Vec<WordTime>,
        aligned: bool,
        spoken: &[usize],
        free: Option<&Trace>,
        at: impl Fn(usize) -> u64,
    ) -> Self {
        let Some(free) = free else { return Self { aligned, ..Self::unread(words) } };
        let heard = heard(&free.segments, spoken, at);
        let mut verdicts = vec![Verdict::Unknown; words.len()];
        for index in spoken {
            let times = heard.iter().filter(|h| h.word == Some(*index)).count();
            verdicts[*index] = match times {
                0 => Verdict::Skipped,
                1 => Verdict::Said,
                _ => Verdict::Repeated,
            };
        }
        Self { words, verdicts, heard, aligned }
    }

    /// Stretches of speech that the script lacks.
    pub fn inserted(&self) -> impl Iterator<Item = &Heard> {
        self.heard.iter().filter(|h| h.word.is_none())
    }

    /// Words left out, said again or put in.
    #[must_use]
    pub fn edits(&self) -> usize {
        let skipped = self.verdicts.iter().filter(|v| **v == Verdict::Skipped).count();
        let said: Vec<usize> = self.heard.iter().filter_map(|h| h.word).collect();
        let mut distinct = said.clone();
        distinct.sort_unstable();
        distinct.dedup();
        skipped + (said.len() - distinct.len()) + self.inserted().count()
    }

    /// Longest run of words left out.
    #[must_use]
    pub fn longest_skip(&self) -> usize {
        self.verdicts.split(|v| *v != Verdict::Skipped).map(<[Verdict]>::len).max().unwrap_or(0)
    }
}

fn heard(segments: &[Segment], spoken: &[usize], at: impl Fn(usize) -> u64) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut from = 0;
    while from < segments.len() {
        let part = segments[from].part;
        let goes_on = |i: &usize| segments[*i].part == part && !segments[*i].begins;
        let to = (from + 1..segments.len()).find(|i| !goes_on(i)).unwrap_or(segments.len());
        let own = &segments[from..to];
        let word = match part {
            Part::Silence => None,
            Part::Word(index) => Some(Some(spoken[index])),
            Part::Insertion => Some(None),
        };
        if let Some(word) = word {
            let (start_ms, end_ms) = (at(own[0].start), at(own[own.len() - 1].end));
            heard.push(Heard { word, start_ms, end_ms, confidence: confidence(own) });
        }
        from = to;
    }
    heard
}
