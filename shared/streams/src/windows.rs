//! A spliced dialogue is cut into windows without losing or halving a context (finetune.md 3.6).

use serde::{Deserialize, Serialize};

use crate::error::StreamsError;
use crate::splice::Span;

/// Bounds of the cutting, frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowRules {
    /// How far a cut may move back to avoid an agent word.
    pub lookback: usize,
    /// Frames a context needs after it in its window, so that the first grounded reply is there.
    pub min_post: usize,
    /// Smallest window.
    pub min_window: usize,
    /// Longest context; part of the smallest usable capacity.
    pub max_tokens_per_injection: usize,
}

impl Default for WindowRules {
    fn default() -> Self {
        Self { lookback: 25, min_post: 25, min_window: 25, max_tokens_per_injection: 50 }
    }
}

impl WindowRules {
    /// Smallest capacity with which no context ever has to be cut.
    #[must_use]
    pub fn smallest_capacity(&self) -> usize {
        (self.min_window + self.max_tokens_per_injection + self.min_post).max(125)
    }
}

/// Windows of one dialogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowCut {
    /// `[start, end)` on the spliced grid.
    pub windows: Vec<Span>,
    /// Cuts that fall inside an agent word.
    pub cut_words: usize,
    /// Frames at the end that are in no window.
    pub dropped_tail_frames: usize,
}

/// Cuts `total` frames; `capacity(start)` is the room of the window that starts there.
///
/// A tail shorter than `min_window` is dropped when another window exists and no context lies in it.
///
/// # Errors
/// When a context is longer than its window, or `capacity` fails.
pub fn cut_windows(
    total: usize,
    spans: &[Span],
    agent_words: &[Span],
    rules: &WindowRules,
    mut capacity: impl FnMut(usize) -> Result<usize, StreamsError>,
) -> Result<WindowCut, StreamsError> {
    let mut cut = WindowCut::default();
    let mut start = 0;
    while start < total {
        let has_context = spans.iter().any(|s| s.0 >= start);
        if total - start < rules.min_window && !cut.windows.is_empty() && !has_context {
            cut.dropped_tail_frames = total - start;
            break;
        }
        let window = capacity(start)?;
        let full = (start + window).min(total);
        let end = if full == total { total } else { choose_end(start, full, spans, agent_words, rules) };
        if let Some(&(s, e)) = spans.iter().find(|&&(s, e)| s >= start && s < end && e > end) {
            return Err(StreamsError::SpanTooLong { start: s, span: e - s, window });
        }
        if end < total && is_inside(end, agent_words) {
            cut.cut_words += 1;
        }
        cut.windows.push((start, end));
        start = end;
    }
    Ok(cut)
}

fn choose_end(start: usize, full: usize, spans: &[Span], words: &[Span], rules: &WindowRules) -> usize {
    // Rule 1: moving before one context can leave too little room after an earlier one, so look again.
    let mut end = full;
    while let Some(&(s, _)) = spans.iter().find(|&&span| is_starved(span, start, end, rules)) {
        end = s;
    }
    if end < full {
        return end;
    }
    // Rule 2: step back out of an agent word, unless that would undo rule 1.
    (0..=rules.lookback)
        .filter_map(|back| full.checked_sub(back))
        .take_while(|&e| e >= start + rules.min_window)
        .find(|&e| {
            !is_inside(e, words)
                && !is_inside(e, spans)
                && !spans.iter().any(|&span| is_starved(span, start, e, rules))
        })
        .unwrap_or(full)
}

/// Whether `span` starts in `[start, end)`, is cut or has too little after it, and the window can end before it.
fn is_starved(span: Span, start: usize, end: usize, rules: &WindowRules) -> bool {
    span.0 < end && span.0 >= start + rules.min_window && end < span.1 + rules.min_post
}

fn is_inside(position: usize, spans: &[Span]) -> bool {
    spans.iter().any(|&(s, e)| s < position && position < e)
}
