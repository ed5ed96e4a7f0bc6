//! Places known labels in the emissions of a CTC model: exact Viterbi on the same graph core (speech.md 3.5).

use crate::error::AlignerError;
use crate::graph::{Ending, GraphBuilder, Rows, State};

/// Where one label lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelSpan {
    /// The label.
    pub label: usize,
    /// First frame.
    pub start: usize,
    /// Frame after its last.
    pub end: usize,
    /// Mean probability over its frames, 0..=1.
    pub score: f32,
}

/// Best alignment of labels to frames.
#[derive(Debug, Clone, PartialEq)]
pub struct CtcAlignment {
    /// Label of every frame, the blank included.
    pub frames: Vec<usize>,
    /// The labels in order.
    pub spans: Vec<LabelSpan>,
    /// Natural-log probability of the whole path.
    pub total: f64,
}

/// Aligns `labels` to natural-log probabilities of `vocabulary` columns a frame.
///
/// # Errors
/// When there are fewer frames than labels plus adjacent repeats, a label or the blank is outside the vocabulary or
/// the values are no whole rows.
pub fn align_labels(
    log_probs: &[f32],
    vocabulary: usize,
    blank: usize,
    labels: &[usize],
) -> Result<CtcAlignment, AlignerError> {
    if vocabulary == 0 || !log_probs.len().is_multiple_of(vocabulary) {
        return Err(AlignerError::BadShape { values: log_probs.len(), vocabulary });
    }
    if let Some(label) = labels.iter().chain([&blank]).copied().find(|l| *l >= vocabulary) {
        return Err(AlignerError::BadLabel { label, vocabulary });
    }
    if labels.contains(&blank) {
        return Err(AlignerError::BadLabel { label: blank, vocabulary });
    }
    let frames = log_probs.len() / vocabulary;
    let repeats = labels.windows(2).filter(|pair| pair[0] == pair[1]).count();
    let too_short = || AlignerError::TooShort { frames, labels: labels.len(), repeats };
    if frames < labels.len() + repeats {
        return Err(too_short());
    }
    let graph = graph(blank, labels);
    let rows = Rows { values: log_probs, width: vocabulary };
    let path = graph.best_path(&rows, Ending::Finish).ok_or_else(too_short)?;
    // States alternate: blank, label 0, blank, label 1 …
    let label_of = |state: u32| (state as usize % 2 == 1).then_some(state as usize / 2);
    let column = |state: u32| label_of(state).map_or(blank, |i| labels[i]);
    let mut spans: Vec<LabelSpan> = Vec::with_capacity(labels.len());
    let mut current = None;
    for (frame, state) in path.states.iter().enumerate() {
        if let Some(index) = label_of(*state) {
            let score = log_probs[frame * vocabulary + labels[index]].exp();
            match spans.last_mut().filter(|_| current == Some(index)) {
                Some(span) => {
                    span.end = frame + 1;
                    span.score += score;
                }
                None => {
                    spans.push(LabelSpan { label: labels[index], start: frame, end: frame + 1, score });
                    current = Some(index);
                }
            }
        }
    }
    for span in &mut spans {
        #[expect(clippy::cast_precision_loss, reason = "a label has few frames")]
        let length = (span.end - span.start) as f32;
        span.score /= length;
    }
    Ok(CtcAlignment { frames: path.states.into_iter().map(column).collect(), spans, total: path.score })
}

fn graph(blank: usize, labels: &[usize]) -> crate::graph::Graph {
    let column = |label: usize| u32::try_from(label).expect("a vocabulary is small");
    let mut builder = GraphBuilder::default();
    let (start, finish) = (builder.null(0), builder.null(1));
    let mut pause = builder.state(column(blank));
    builder.arc(pause, pause, 0.0);
    builder.arc(start, pause, 0.0);
    let mut before: Option<(usize, State)> = None;
    for &label in labels {
        let state = builder.state(column(label));
        builder.arc(state, state, 0.0);
        builder.arc(pause, state, 0.0);
        match before {
            None => builder.arc(start, state, 0.0),
            Some((other, from)) if other != label => builder.arc(from, state, 0.0),
            Some(_) => {}
        }
        pause = builder.state(column(blank));
        builder.arc(pause, pause, 0.0);
        builder.arc(state, pause, 0.0);
        before = Some((label, state));
    }
    builder.arc(pause, finish, 0.0);
    match before {
        Some((_, state)) => builder.arc(state, finish, 0.0),
        None => builder.arc(start, finish, 0.0),
    }
    builder.build(start, finish)
}
