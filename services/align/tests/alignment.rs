//! Words, turns, channels and gates of hand-made calls.

mod common;

use align::AlignError;
use align::align::{Aligned, align};
use align::words::Repairs;
use audio::levels::{energy, peak};
use common::{Call, PAUSE_MS, WORD_MS, call};
use domain::dialogue::Speaker;

const TEXTS: [&str; 3] = ["Hello there you", "It costs $13,100 - really?", "Yes it does"];

fn aligned(call: &Call) -> Aligned {
    align(&call.record, &call.report, &call.mono, 0.15).expect("aligns")
}

fn assert_ascending(aligned: &Aligned, call: &Call) {
    let seconds = call.mono.duration_ms() as f64 / 1000.0;
    let mut at = 0.0;
    for (word, (start, end), _) in &aligned.sidecar.alignments {
        assert!(*start >= at && start < end && *end <= seconds, "{word} {start} {end} after {at}");
        at = *end;
    }
}

#[test]
fn every_written_token_has_a_time_and_measured_ones_keep_theirs() {
    let call = call("a", &TEXTS);
    let result = aligned(&call);
    assert_ascending(&result, &call);
    let words: Vec<&str> = result.sidecar.alignments.iter().map(|w| w.0.as_str()).collect();
    assert_eq!(words, TEXTS.iter().flat_map(|t| t.split_whitespace()).collect::<Vec<_>>());
    assert_eq!(result.sidecar.alignment_flags.interp, [6], "only the dash is estimated");
    let reported = call.report.words.as_ref().expect("words");
    for (published, reported) in result.sidecar.alignments.iter().zip(reported) {
        assert!((published.1.0 * 1000.0 - reported.start_ms as f64).abs() <= 10.0, "{published:?}");
    }
    assert_eq!(result.faults, Vec::<String>::new());
    assert_eq!(result.repairs, Repairs::default());
    assert_eq!(result.sidecar.voice_prompt.as_deref(), Some("../speaker_samples/tones-a.wav"));
}

#[test]
fn agent_is_left_user_right_and_the_other_side_is_digital_zero() {
    let call = call("a", &TEXTS);
    let result = aligned(&call);
    assert_eq!(result.stereo.len(), call.mono.len());
    for word in call.report.words.iter().flatten().filter(|w| w.start_ms < w.end_ms) {
        let range = word.start_ms as usize * 24..word.end_ms as usize * 24;
        let (own, other) = if word.speaker == Speaker::Agent { (0, 1) } else { (1, 0) };
        assert!(peak(&result.stereo.channels[own][range.clone()]) > 0.25, "{word:?}");
        assert!(result.stereo.channels[other][range].iter().all(|s| *s == 0.0), "{word:?}");
    }
    let kept: f64 = result.stereo.channels.iter().map(|c| energy(c)).sum();
    assert!(kept / energy(&call.mono.channels[0]) > 0.99);
}

#[test]
fn injections_sit_at_the_end_of_agent_turns_and_the_start_of_user_turns() {
    let call = call("a", &TEXTS);
    let result = aligned(&call);
    let offsets: Vec<_> = result.sidecar.context_injections.iter().map(|i| i.frame_offset).collect();
    let agent_end = PAUSE_MS + 3 * WORD_MS;
    assert_eq!(offsets, [Some(agent_end.div_ceil(80) as u32), Some(((agent_end + PAUSE_MS) / 80) as u32)]);
    let mut late = common::call("b", &TEXTS);
    late.record.context_injections[1].after_turn = 9;
    let result = align(&late.record, &late.report, &late.mono, 0.15).expect("aligns");
    assert!(result.faults.iter().any(|f| f.contains('9')), "{:?}", result.faults);
}

#[test]
fn turns_without_words_keep_their_index_and_lie_between_their_neighbours() {
    let call = call("a", &["!!!", "Hi you there now", "\u{1f600}", " ", "Good bye to you", "\u{2026}"]);
    let result = aligned(&call);
    let turns = &result.sidecar.turns;
    assert_eq!(turns.iter().map(|t| t.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let end = call.mono.duration_ms() as f64 / 1000.0;
    assert_eq!((turns[0].start, turns[0].end), (0.0, turns[1].start));
    assert_eq!((turns[2].start, turns[2].end), (turns[1].end, turns[4].start));
    assert_eq!((turns[3].start, turns[3].end), (turns[1].end, turns[4].start));
    assert_eq!((turns[5].start, turns[5].end), (turns[4].end, end));
    assert_eq!(result.sidecar.alignments.len(), 8);
    let silent = common::call("b", &["!!!", "..."]);
    let result = align(&silent.record, &silent.report, &silent.mono, 0.15).expect("aligns");
    assert!(result.sidecar.alignments.is_empty() && result.faults.len() >= 4, "{:?}", result.faults);
}

#[test]
fn zero_negative_overlapping_and_unsorted_words_are_repaired_and_counted() {
    let mut call = call("a", &["one two three four five six seven eight", "yes I do"]);
    let words = call.report.words.as_mut().expect("words");
    words[1].end_ms = words[1].start_ms;
    words[2].end_ms = words[2].start_ms - 50;
    words[4].start_ms -= 60;
    words.swap(5, 9);
    let result = align(&call.record, &call.report, &call.mono, 0.5).expect("aligns");
    assert_ascending(&result, &call);
    assert_eq!(result.sidecar.alignments.len(), 11);
    assert_eq!(result.sidecar.alignment_flags.interp, [1, 2]);
    assert_eq!((result.repairs.impossible, result.repairs.overlapping), (1, 1));
    assert!(result.repairs.unsorted >= 1, "{:?}", result.repairs);
    let strict = align(&call.record, &call.report, &call.mono, 0.15).expect("aligns");
    assert!(strict.faults.iter().any(|f| f.contains("2 of 11 words")), "{:?}", strict.faults);
}

#[test]
fn an_engine_without_word_times_gives_estimates_that_the_gates_refuse() {
    let mut call = call("a", &TEXTS);
    call.report.words = None;
    let result = aligned(&call);
    assert_ascending(&result, &call);
    assert_eq!(result.sidecar.alignments.len(), 11);
    assert!(result.faults.iter().any(|f| f.contains("11 of 11 words")), "{:?}", result.faults);
    assert!(result.faults.iter().any(|f| f.contains("turn 2 is without a measured word")));
}

#[test]
fn text_longer_than_its_audio_is_spread_or_reported_and_never_lost_in_silence() {
    let many = "word ".repeat(60);
    let mut call = call("a", &["Hello there", "x", "Fine"]);
    call.record.turns[1].text = many.trim().to_owned();
    let result = align(&call.record, &call.report, &call.mono, 0.15).expect("aligns");
    assert_ascending(&result, &call);
    assert_eq!(result.sidecar.alignments.len(), 63, "200 ms hold 60 words of 3 ms");
    call.record.turns[1].text = "word ".repeat(600).trim().to_owned();
    let result = align(&call.record, &call.report, &call.mono, 0.15).expect("aligns");
    assert!(result.faults.contains(&"turn 1 is too short for its words".to_owned()), "{:?}", result.faults);
}

#[test]
fn a_one_sided_call_and_a_report_of_another_script_are_found() {
    let mut call = call("a", &["Hello there", "!!", "Good bye"]);
    let result = aligned(&call);
    assert!(
        result.faults.iter().any(|f| f.contains("right (user) channel is silent")),
        "{:?}",
        result.faults
    );
    assert!(
        result.faults.iter().any(|f| f.contains("0 of 4 words belong to the user")),
        "{:?}",
        result.faults
    );
    call.report.turns.pop();
    let error = align(&call.record, &call.report, &call.mono, 0.15).expect_err("turns");
    assert!(matches!(error, AlignError::TurnCount { found: 2, expected: 3, .. }), "{error}");
    call.mono.rate = 16_000;
    let error = align(&call.record, &call.report, &call.mono, 0.15).expect_err("rate");
    assert!(error.to_string().contains("16000"), "{error}");
}
