//! The best path of a script through features, as phones with their frames.

use crate::frontend::Feature;
use crate::graph::{Ending, Path, Rows};
use crate::model::AcousticModel;
use crate::phones::{Phone, STATES};
use crate::script::{
    ANYTHING_COLUMN, Deviations, FIRST_SENONE, Part, SPEECH_COLUMN, Script, ScriptGraph, build,
};
use crate::senones::{BLOCK, Scorer};

/// A phone, a pause or an insertion on the best path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// What it belongs to.
    pub part: Part,
    /// The phone; meaningless for insertions.
    pub phone: Phone,
    /// Its number in the model, context included.
    pub triphone: u32,
    /// First frame.
    pub start: usize,
    /// Frame after the last.
    pub end: usize,
    /// Natural-log score of its frames.
    pub score: f64,
    /// What the best phone without context scores on the same frames.
    pub background: f64,
    /// Whether a word begins with it.
    pub begins: bool,
}

/// A best path.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// In order, without gaps.
    pub segments: Vec<Segment>,
    /// Natural-log score, transitions included.
    pub score: f64,
}

/// Scores of all frames, `[best speech, best phone, senones …]` a row.
struct Scores {
    values: Vec<f32>,
    width: usize,
}

fn scores(model: &AcousticModel, features: &[Feature], senones: &[u16]) -> Scores {
    let phones = model.phones();
    let mut all = senones.to_vec();
    let (mut speech, mut filler) = (Vec::new(), Vec::new());
    for phone in (0..).take(phones.names().len()) {
        let list = if phones.is_filler(phone) { &mut filler } else { &mut speech };
        list.extend(phones.states(phones.plain(phone)));
    }
    all.extend(&speech);
    all.extend(&filler);
    let scorer = Scorer::new(model, &all);
    let first = FIRST_SENONE as usize;
    let width = first + senones.len();
    let mut values = vec![0.0; features.len() * width];
    let mut block_scores = vec![0.0; BLOCK * all.len()];
    let best = |scores: &[f32]| scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for (block, rows) in features.chunks(BLOCK).zip(values.chunks_mut(BLOCK * width)) {
        scorer.score(block, &mut block_scores);
        for (row, scored) in rows.chunks_exact_mut(width).zip(block_scores.chunks_exact(all.len())) {
            let (own, plain) = scored.split_at(senones.len());
            row[first..].copy_from_slice(own);
            row[SPEECH_COLUMN as usize] = best(&plain[..speech.len()]);
            row[ANYTHING_COLUMN as usize] = best(plain);
        }
    }
    Scores { values, width }
}

pub(crate) fn trace(
    model: &AcousticModel,
    features: &[Feature],
    script: &Script<'_>,
    deviations: Option<&Deviations>,
    ending: Ending,
) -> Option<Trace> {
    if features.is_empty() {
        return None;
    }
    let graph = build(model, script, deviations);
    let scores = scores(model, features, &graph.senones);
    let rows = Rows { values: &scores.values, width: scores.width };
    let path = graph.graph.best_path(&rows, ending)?;
    Some(Trace { segments: segments(&graph, &scores, &path), score: path.score })
}

fn segments(graph: &ScriptGraph, scores: &Scores, path: &Path) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut before: Option<(u32, u8)> = None;
    for (frame, state) in path.states.iter().enumerate() {
        let place = graph.places[*state as usize];
        let row = &scores.values[frame * scores.width..(frame + 1) * scores.width];
        let score = f64::from(row[graph.graph.column(*state)]);
        let background = f64::from(row[ANYTHING_COLUMN as usize]);
        let goes_on = before.is_some_and(|(node, state)| node == place.node && state <= place.state);
        before = Some((place.node, place.state));
        if let Some(segment) = segments.last_mut().filter(|_| goes_on) {
            segment.end = frame + 1;
            segment.score += score;
            segment.background += background;
            continue;
        }
        segments.push(Segment {
            part: place.part,
            phone: place.triphone.base,
            triphone: place.triphone.id,
            start: frame,
            end: frame + 1,
            score,
            background,
            begins: place.begins,
        });
    }
    segments
}

/// Fewest frames of a script: every phone needs one for each state.
pub(crate) fn fewest_frames(script: &Script<'_>) -> usize {
    script.words.iter().map(|word| word.iter().map(Vec::len).min().unwrap_or(0) * STATES).sum()
}
