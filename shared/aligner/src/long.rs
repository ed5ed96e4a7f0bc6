//! Long sound in bounded memory: a window is aligned with a free end, words that end well before it are kept, and the
//! next window begins behind them.

use crate::frontend::Feature;
use crate::graph::Ending;
use crate::model::AcousticModel;
use crate::phones::Phone;
use crate::script::{Part, Script};
use crate::trace::{Segment, Trace, trace};

/// Frames of a window: 30 s.
const WINDOW: usize = 3000;
/// Frames at the end of a window whose words are not kept: 5 s.
const UNDECIDED: usize = 500;
/// Frames of a phone in the fastest speech that is sustained over a window.
const FAST_PHONE: usize = 5;

pub(crate) fn trace_in_windows(
    model: &AcousticModel,
    features: &[Feature],
    script: &Script<'_>,
) -> Option<Trace> {
    let (mut segments, mut score) = (Vec::new(), 0.0);
    let (mut frame, mut word, mut before) = (0, 0, Vec::new());
    while features.len() - frame > WINDOW {
        let window = &features[frame..frame + WINDOW];
        let count = words_within(script, word);
        let piece = Script { words: script.words[word..word + count].to_vec(), before };
        let part = trace(model, window, &piece, None, Ending::Open)?;
        let kept = kept(&part.segments)?;
        let end = kept.last().map_or(0, |s| s.end);
        let last = kept.iter().rev().find_map(|s| word_of(s).map(|w| (w, s.phone)));
        before = contexts(kept, last.map(|(_, phone)| phone));
        score += kept.iter().map(|s| s.score).sum::<f64>();
        segments.extend(kept.iter().map(|s| moved(s, frame, word)));
        frame += end;
        word += last.map_or(0, |(index, _)| index + 1);
    }
    let piece = Script { words: script.words[word..].to_vec(), before };
    let part = trace(model, &features[frame..], &piece, None, Ending::Finish)?;
    segments.extend(part.segments.iter().map(|s| moved(s, frame, word)));
    Some(Trace { segments, score: score + part.score })
}

/// Words that can be said in a window.
fn words_within(script: &Script<'_>, from: usize) -> usize {
    let mut frames = 0;
    let fits = |word: &&&[Vec<Phone>]| {
        frames += word.iter().map(Vec::len).min().unwrap_or(0) * FAST_PHONE;
        frames <= WINDOW
    };
    script.words[from..].iter().take_while(fits).count()
}

fn word_of(segment: &Segment) -> Option<usize> {
    match segment.part {
        Part::Word(index) => Some(index),
        Part::Silence | Part::Insertion => None,
    }
}

/// Segments up to the last boundary that will not change; `None` when there is none.
fn kept(segments: &[Segment]) -> Option<&[Segment]> {
    let limit = WINDOW - UNDECIDED;
    let boundary = |i: &usize| segments[*i].part != segments[*i - 1].part;
    let ends = || (1..segments.len()).filter(boundary);
    // Behind a word; a pause alone is cut anywhere, and a word that outlasts the window is taken as it is.
    let safe = ends().rfind(|i| segments[*i].start <= limit);
    safe.or_else(|| ends().next()).map_or_else(
        || (segments.first().map(|s| s.part) == Some(Part::Silence)).then_some(segments),
        |i| Some(&segments[..i]),
    )
}

/// A word may follow directly only on a word.
fn contexts(kept: &[Segment], last: Option<Phone>) -> Vec<Phone> {
    let ends_in_word = kept.last().is_some_and(|s| word_of(s).is_some());
    last.filter(|_| ends_in_word).into_iter().collect()
}

fn moved(segment: &Segment, frames: usize, words: usize) -> Segment {
    let part = match segment.part {
        Part::Word(index) => Part::Word(index + words),
        other => other,
    };
    Segment { part, start: segment.start + frames, end: segment.end + frames, ..*segment }
}
