//! Cutting windows directly, with contexts and words far denser than in dialogues.

use proptest::prelude::*;
use streams::StreamsError;
use streams::splice::Span;
use streams::windows::{WindowRules, cut_windows};

/// Spans with gaps before them, in order and apart from each other.
fn laid_out(parts: &[(usize, usize)]) -> Vec<Span> {
    let mut at = 0;
    parts
        .iter()
        .map(|&(gap, len)| {
            let start = at + gap;
            at = start + len;
            (start, at)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_context_is_cut_lost_or_starved_without_need(
        parts in prop::collection::vec((0usize..90, 1usize..=50), 0..12),
        tail in 0usize..60,
        words in prop::collection::vec((0usize..20, 1usize..=30), 0..40),
        (lookback, min_post, min_window) in (0usize..=250, 0usize..=250, 1usize..=120),
        spare in 0usize..95,
    ) {
        let spans = laid_out(&parts);
        let total = spans.last().map_or(0, |s| s.1) + tail;
        let words = laid_out(&words);
        let rules = WindowRules { lookback, min_post, min_window, ..WindowRules::default() };
        let room = rules.smallest_capacity() + spare;
        let cut = cut_windows(total, &spans, &words, &rules, |_| Ok(room)).expect("room enough");
        let mut at = 0;
        for &(start, end) in &cut.windows {
            prop_assert_eq!(start, at);
            prop_assert!(end > start && end - start <= room);
            prop_assert!(end == total || end - start >= rules.min_window);
            at = end;
        }
        prop_assert_eq!(at + cut.dropped_tail_frames, total);
        for &(s, e) in &spans {
            let home: Vec<_> = cut.windows.iter().filter(|w| w.0 <= s && e <= w.1).collect();
            prop_assert_eq!(home.len(), 1, "context {}..{} in {:?}", s, e, cut.windows);
            let &(start, end) = home[0];
            prop_assert!(
                end == total || end >= e + rules.min_post || s < start + rules.min_window,
                "context {}..{} has too little after it in {}..{}", s, e, start, end
            );
        }
    }
}

#[test]
fn a_short_tail_with_a_context_is_kept() {
    let rules = WindowRules::default();
    let cut = cut_windows(160, &[(150, 158)], &[], &rules, |_| Ok(150)).expect("fits");
    assert_eq!(cut.windows, [(0, 150), (150, 160)]);
    let cut = cut_windows(160, &[], &[], &rules, |_| Ok(150)).expect("fits");
    assert_eq!((cut.windows, cut.dropped_tail_frames), (vec![(0, 150)], 10));
}

#[test]
fn stepping_out_of_a_word_does_not_step_into_a_context() {
    let rules = WindowRules { min_post: 0, ..WindowRules::default() };
    // The word before the cut begins where the context ends: every earlier frame belongs to one of them.
    let cut = cut_windows(400, &[(100, 140)], &[(140, 160)], &rules, |_| Ok(150)).expect("fits");
    assert_eq!(cut.windows[0], (0, 140));
    let cut = cut_windows(400, &[(100, 140)], &[(138, 160)], &rules, |_| Ok(150)).expect("fits");
    assert_eq!((cut.windows[0], cut.cut_words), ((0, 150), 1));
}

#[test]
fn a_context_longer_than_its_window_is_an_error() {
    let error = cut_windows(400, &[(10, 200)], &[], &WindowRules::default(), |_| Ok(150));
    assert_eq!(error, Err(StreamsError::SpanTooLong { start: 10, span: 190, window: 150 }));
}
