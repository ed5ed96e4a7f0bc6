//! From the engine's report to one span for every written token of every turn.

use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dialogue::{DialogueRecord, Turn};
use domain::render::RenderReport;
use spoken::matching::common_words;
use spoken::script::clean_turn;

use crate::error::AlignError;
use crate::fill::{Span, fill};

/// How far a word may lie outside its turn's span and still belong to it, ms.
const SLACK_MS: u64 = 50;

/// What had to be put right in the report, so that nothing is repaired in silence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Words that were not in order of time.
    pub unsorted: usize,
    /// Words that ended before they started or after the audio; their times are dropped.
    pub impossible: usize,
    /// Words that overlapped the one before; they start later.
    pub overlapping: usize,
}

/// Words and turns with their times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimedWords {
    /// Every written token of every turn that is said, in order.
    pub words: Vec<AlignedWord>,
    /// One per turn of the record, same index.
    pub turns: Vec<AlignedTurn>,
    /// What was put right.
    pub repairs: Repairs,
    /// Turns whose words do not fit into their audio.
    pub cramped: Vec<u32>,
    /// Turns in which no word has a measured time.
    pub unmeasured: Vec<u32>,
}

/// Gives every token its time.
///
/// A turn without sound has no words and the span from the end of the turn before to the start of the turn after it.
///
/// # Errors
/// When the report is of another script.
pub fn time_words(record: &DialogueRecord, report: &RenderReport) -> Result<TimedWords, AlignError> {
    check_turns(record, report)?;
    let mut done = TimedWords::default();
    let reported = sorted(report.words.as_deref().unwrap_or_default(), &mut done.repairs);
    for (turn, place) in record.turns.iter().zip(&report.turns) {
        let text = clean_turn(&turn.text);
        let tokens: Vec<&str> = text.split_whitespace().collect();
        let window = (place.start_ms, place.end_ms.min(report.duration_ms));
        if window.0 >= window.1 || tokens.is_empty() {
            done.turns.push(timed_turn(turn, (0, 0)));
            continue;
        }
        let mine: Vec<&AlignedWord> = reported
            .iter()
            .copied()
            .filter(|w| w.speaker == turn.speaker)
            .filter(|w| {
                let middle = u64::midpoint(w.start_ms, w.end_ms.max(w.start_ms));
                middle + SLACK_MS >= window.0 && middle <= window.1 + SLACK_MS
            })
            .collect();
        let measured = measured(&tokens, &mine, window, &mut done.repairs);
        done.add(turn, &tokens, &measured, window);
    }
    place_silent(&mut done.turns, report.duration_ms);
    Ok(done)
}

impl TimedWords {
    pub(crate) fn add(&mut self, turn: &Turn, tokens: &[&str], measured: &[Option<Span>], window: Span) {
        let Some(placed) = fill(tokens, measured, window) else {
            self.cramped.push(turn.index);
            self.turns.push(timed_turn(turn, window));
            return;
        };
        if placed.iter().all(|p| p.estimated) {
            self.unmeasured.push(turn.index);
        }
        let first = placed.first().map_or(window.0, |p| p.span.0);
        let last = placed.last().map_or(window.1, |p| p.span.1);
        self.turns.push(timed_turn(turn, (first, last)));
        self.words.extend(tokens.iter().zip(placed).map(|(token, placed)| AlignedWord {
            word: (*token).to_owned(),
            start_ms: placed.span.0,
            end_ms: placed.span.1,
            speaker: turn.speaker,
            estimated: placed.estimated,
        }));
    }
}

pub(crate) fn check_turns(record: &DialogueRecord, report: &RenderReport) -> Result<(), AlignError> {
    let (found, expected) = (report.turns.len(), record.turns.len());
    if found != expected {
        return Err(AlignError::TurnCount { id: record.id.clone(), found, expected });
    }
    let differs =
        |(turn, place): &(&Turn, &AlignedTurn)| (turn.index, turn.speaker) != (place.index, place.speaker);
    match record.turns.iter().zip(&report.turns).enumerate().find(|(_, pair)| differs(pair)) {
        Some((position, (_, place))) => {
            Err(AlignError::TurnMismatch { id: record.id.clone(), position, index: place.index })
        }
        None => Ok(()),
    }
}

fn sorted<'a>(words: &'a [AlignedWord], repairs: &mut Repairs) -> Vec<&'a AlignedWord> {
    repairs.unsorted = words.windows(2).filter(|pair| pair[0].start_ms > pair[1].start_ms).count();
    let mut sorted: Vec<&AlignedWord> = words.iter().collect();
    // Stable: words without length keep their place behind the word that they follow.
    sorted.sort_by_key(|w| w.start_ms);
    sorted
}

/// Measured spans of a turn's tokens: ascending, without overlap, inside the window.
fn measured(
    tokens: &[&str],
    words: &[&AlignedWord],
    window: Span,
    repairs: &mut Repairs,
) -> Vec<Option<Span>> {
    let names: Vec<&str> = words.iter().map(|w| w.word.as_str()).collect();
    let mut spans = vec![None; tokens.len()];
    let mut free_from = window.0;
    for (token, word) in common_words(tokens, &names) {
        let word = words[word];
        if word.estimated || word.start_ms == word.end_ms {
            continue;
        }
        if word.end_ms < word.start_ms || word.start_ms >= window.1 {
            repairs.impossible += 1;
            continue;
        }
        if word.start_ms < free_from && free_from > window.0 {
            repairs.overlapping += 1;
        }
        let (start, end) = (word.start_ms.max(free_from), word.end_ms.min(window.1));
        if start < end {
            spans[token] = Some((start, end));
            free_from = end;
        }
    }
    spans
}

pub(crate) fn timed_turn(turn: &Turn, (start_ms, end_ms): Span) -> AlignedTurn {
    AlignedTurn { index: turn.index, speaker: turn.speaker, start_ms, end_ms, text: turn.text.clone() }
}

/// Turns without sound: from the end of the one before to the start of the next one with sound.
pub(crate) fn place_silent(turns: &mut [AlignedTurn], duration_ms: u64) {
    let mut next_start = duration_ms;
    for turn in turns.iter_mut().rev() {
        if turn.end_ms == 0 {
            turn.end_ms = next_start;
            turn.start_ms = u64::MAX;
        } else {
            next_start = turn.start_ms;
        }
    }
    let mut previous_end = 0;
    for turn in turns {
        if turn.start_ms == u64::MAX {
            turn.start_ms = previous_end.min(turn.end_ms);
        } else {
            previous_end = turn.end_ms;
        }
    }
}
