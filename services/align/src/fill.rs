//! Times for words that have none: between their neighbours, in proportion to their letters.

/// Start and end in milliseconds.
pub type Span = (u64, u64);

/// What an interpolated word gets at least; what a neighbour lends when two words leave no room between them.
const MIN_MS: u64 = 10;

/// A placed word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Where.
    pub span: Span,
    /// Whether the time was interpolated.
    pub estimated: bool,
}

/// Places the words of one turn. `spans` are measured, ascending, without overlap and inside `window`.
///
/// Every result has a length of at least 1 ms and starts where or after the one before ends. When the measured words
/// leave no room for the others, all are spread over the window. `None` when the window has fewer milliseconds than
/// words.
#[must_use]
pub fn fill(words: &[&str], spans: &[Option<Span>], window: Span) -> Option<Vec<Placed>> {
    if window.1.saturating_sub(window.0) < words.len() as u64 {
        return None;
    }
    let mut known = spans.to_vec();
    let estimated: Vec<bool> = spans.iter().map(Option::is_none).collect();
    let mut from = 0;
    while from < known.len() {
        if known[from].is_some() {
            from += 1;
            continue;
        }
        let to = (from..known.len()).find(|&i| known[i].is_some()).unwrap_or(known.len());
        let (lower, upper) = room(&mut known, from..to, window);
        if upper.saturating_sub(lower) < (to - from) as u64 {
            let spread = share(words, window).into_iter();
            return Some(spread.map(|span| Placed { span, estimated: true }).collect());
        }
        for (slot, span) in known[from..to].iter_mut().zip(share(&words[from..to], (lower, upper))) {
            *slot = Some(span);
        }
        from = to;
    }
    Some(
        known
            .into_iter()
            .flatten()
            .zip(estimated)
            .map(|(span, estimated)| Placed { span, estimated })
            .collect(),
    )
}

/// The gap around a run of words without times; neighbours give up some milliseconds when it is too small.
fn room(known: &mut [Option<Span>], run: std::ops::Range<usize>, window: Span) -> Span {
    let need = run.len() as u64 * MIN_MS;
    let before = run.start.checked_sub(1);
    let mut lower = before.and_then(|i| known[i]).map_or(window.0, |s| s.1);
    let mut upper = known.get(run.end).copied().flatten().map_or(window.1, |s| s.0);
    let lend = |span: Span, need: u64| (span.1 - span.0).saturating_sub(MIN_MS).min(need);
    if let Some(span) = before.and_then(|i| known[i].as_mut()) {
        let lent = lend(*span, need.saturating_sub(upper - lower));
        span.1 -= lent;
        lower -= lent;
    }
    if let Some(span) = known.get_mut(run.end).and_then(Option::as_mut) {
        let lent = lend(*span, need.saturating_sub(upper - lower));
        span.0 += lent;
        upper += lent;
    }
    (lower, upper)
}

/// Cuts a stretch of at least one millisecond per word in proportion to the words' letters.
fn share(words: &[&str], (lower, upper): Span) -> Vec<Span> {
    let letters = |word: &&str| word.chars().count().max(1) as u64;
    let total: u64 = words.iter().map(letters).sum();
    let spare = upper - lower - words.len() as u64;
    let mut edges = vec![lower];
    let mut seen = 0;
    for (i, word) in (1..).zip(words) {
        seen += letters(word);
        edges.push(lower + i + spare * seen / total.max(1));
    }
    edges.windows(2).map(|e| (e[0], e[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(placed: &[Placed]) -> Vec<Span> {
        placed.iter().map(|p| p.span).collect()
    }

    #[test]
    fn a_word_without_time_takes_the_gap_between_its_neighbours() {
        let placed =
            fill(&["a", "2266", "b"], &[Some((0, 100)), None, Some((400, 500))], (0, 500)).expect("fits");
        assert_eq!(spans(&placed), [(0, 100), (100, 400), (400, 500)]);
        assert_eq!(placed.iter().map(|p| p.estimated).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn neighbours_without_a_gap_lend_a_little_and_never_more_than_a_frame() {
        let placed =
            fill(&["a", "-", "b"], &[Some((0, 100)), None, Some((100, 200))], (0, 200)).expect("fits");
        assert_eq!(spans(&placed), [(0, 90), (90, 100), (100, 200)]);
        let first = fill(&["-", "b"], &[None, Some((0, 200))], (0, 200)).expect("fits");
        assert_eq!(spans(&first), [(0, 10), (10, 200)]);
    }

    #[test]
    fn any_mix_of_known_and_unknown_words_gives_ascending_words_inside_the_window() {
        for mask in 0..64u32 {
            for length in [6u64, 7, 30, 61, 600] {
                let words = ["one", "22", "-", "four", "5,000", "!"];
                let step = length / 6;
                let known: Vec<Option<Span>> = (0..6)
                    .map(|i| (mask >> i & 1 == 1).then_some((100 + i * step, 100 + (i + 1) * step)))
                    .collect();
                let placed = fill(&words, &known, (100, 100 + length)).expect("a millisecond each");
                assert_eq!(placed.len(), 6);
                let mut at = 100;
                for word in &placed {
                    assert!(word.span.0 >= at && word.span.0 < word.span.1, "{mask} {length} {placed:?}");
                    at = word.span.1;
                }
                assert!(at <= 100 + length, "{placed:?}");
            }
        }
        assert_eq!(fill(&["a", "b"], &[None, None], (5, 6)), None);
    }
}
