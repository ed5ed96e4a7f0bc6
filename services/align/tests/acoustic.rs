//! Real speech through acoustic alignment: clean calls pass with every token timed, each fault is found.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts of samples and words"
)]

mod common;

use std::path::Path;
use std::sync::LazyLock;

use align::align::{Aligned, align_acoustically};
use align::{AlignError, Limits};
use aligner::Aligner;
use audio::Waveform;
use common::Call;
use domain::dialogue::Speaker;
use domain::render::RenderReport;
use tts::FliteEngine;
use tts::render::render;

const TEXTS: [&str; 8] = [
    "Good morning, this is Anna from Harbour Insurance \u{2014} how can I help you?",
    "Hi, uh, does my premium go up to $13,100 by 01/15/2026?",
    "[typing] Let me check... Your policy number, please.",
    "It's EM3985771. My e-mail is bob@example.com, phone 555 123 4567.",
    "!!!",
    "Hello? \u{1f600} Are you there?",
    "Yes \u{2013} it rose by 4.5% because of Dr. Smith's 2nd claim; that's 1,234.56 USD.",
    "Okay... half at 3:30 p.m., i.e. today & tomorrow.",
];

static ALIGNER: LazyLock<Aligner> = LazyLock::new(|| {
    Aligner::open(Path::new("/usr/share/pocketsphinx/model/en-us")).expect("pocketsphinx-en-us is installed")
});

/// A call as flite says it; the record may be changed afterwards.
fn spoken(texts: &[&str]) -> Call {
    let call = common::call("dial-00000", texts);
    let rendering = render(&call.record, &FliteEngine::new(), 3000).expect("renders");
    Call { report: rendering.report, mono: rendering.wave, record: call.record }
}

fn aligned(call: &Call) -> Aligned {
    align_acoustically(&ALIGNER, &call.record, &call.report, &call.mono, &Limits::default()).expect("aligns")
}

fn has(aligned: &Aligned, part: &str) {
    assert!(aligned.faults.iter().any(|f| f.contains(part)), "no {part:?} in {:?}", aligned.faults);
}

#[test]
fn a_clean_call_passes_with_every_token_timed_near_the_synthesisers_times() {
    let mut call = spoken(&TEXTS);
    call.record.context_injections[1].after_turn = 6;
    let RenderReport { words, .. } = call.report.clone();
    // The sound alone decides.
    call.report.words = None;
    let result = aligned(&call);
    assert_eq!(result.faults, Vec::<String>::new());
    let published: Vec<&str> = result.sidecar.alignments.iter().map(|w| w.0.as_str()).collect();
    let cleaned: Vec<String> = TEXTS.iter().map(|t| spoken::script::clean_turn(t)).collect();
    let said: Vec<&str> = cleaned.iter().filter(|t| *t != "!!!").flat_map(|t| t.split_whitespace()).collect();
    assert_eq!(published, said);
    let estimated: Vec<&str> = result.sidecar.alignment_flags.interp.iter().map(|i| published[*i]).collect();
    assert_eq!(estimated, ["-", "\u{1f600}", "-"]);
    let mut at = 0.0;
    for (word, (start, end), _) in &result.sidecar.alignments {
        assert!(*start >= at && start < end, "{word} {start} {end}");
        at = *end;
    }
    let measured = words.expect("flite reports words").into_iter().filter(|w| !w.estimated);
    let ours = result.sidecar.alignments.iter().enumerate();
    let ours = ours.filter(|(i, _)| !result.sidecar.alignment_flags.interp.contains(i));
    for ((_, ours), right) in ours.zip(measured) {
        let difference = (ours.1.0 * 1000.0 - right.start_ms as f64).abs();
        assert!(ours.0 == right.word && difference <= 120.0, "{ours:?} {right:?}");
    }
    for (ours, right) in result.sidecar.turns.iter().zip(&call.report.turns).filter(|(t, _)| t.index != 4) {
        assert!((ours.start * 1000.0 - right.start_ms as f64).abs() <= 100.0, "{ours:?} {right:?}");
        assert!((ours.end * 1000.0 - right.end_ms as f64).abs() <= 100.0, "{ours:?} {right:?}");
    }
}

#[test]
fn words_that_the_voice_skipped_repeated_or_added_are_a_reason_to_refuse() {
    let said = "I can send you the new offer for your house today or tomorrow.";
    let call = spoken(&[said, "Yes please, send it to my office."]);
    assert_eq!(aligned(&call).faults, Vec::<String>::new());
    for (written, reason) in [
        ("I can send you the very best and cheapest new offer for your house today or tomorrow.", "in a row"),
        ("I can send the new offer today or tomorrow.", "were skipped, repeated or added"),
        ("I can send you the new offer for your house today or tomorrow or tomorrow.", "were skipped"),
    ] {
        let mut other = spoken(&[said, "Yes please, send it to my office."]);
        other.record.turns[0].text = written.into();
        has(&aligned(&other), reason);
    }
}

#[test]
fn speech_of_another_text_has_no_coverage() {
    let mut call = spoken(&["Good morning, how can I help you today?", "I want to change my address."]);
    call.record.turns[0].text = "Seventeen purple elephants marched across Kansas".into();
    call.record.turns[1].text = "Bring umbrellas everybody thunderstorms approach quickly".into();
    let result = aligned(&call);
    has(&result, "words are heard");
    assert_eq!(result.sidecar.alignments.len(), 12, "every word has a time all the same");
}

#[test]
fn a_last_word_that_is_cut_is_found() {
    let call = spoken(&["Your policy ends in February.", "Thank you very much for everything."]);
    assert_eq!(aligned(&call).faults, Vec::<String>::new());
    let mut cut = spoken(&["Your policy ends in February.", "Thank you very much for everything."]);
    let end = cut.report.turns[0].end_ms;
    let (from, to) = ((end - 150) as usize * 24, (end + 100) as usize * 24);
    cut.mono.channels[0][from..to].fill(0.0);
    has(&aligned(&cut), "turn 0 ends");
}

#[test]
fn music_under_the_speech_is_found() {
    let mut call = spoken(&["Your policy ends in February.", "Thank you very much for everything."]);
    for (i, sample) in call.mono.channels[0].iter_mut().enumerate() {
        let t = i as f32 / 24_000.0 * std::f32::consts::TAU;
        *sample += 0.02 * ((t * 220.0).sin() + (t * 277.2).sin() + (t * 329.6).sin());
    }
    has(&aligned(&call), "above what lies between it");
}

#[test]
fn empty_unsayable_and_overlong_turns_keep_their_index_and_never_fail() {
    let mut call = spoken(&["Hello there", "Fine thanks", "15.09.2021", "Yes"]);
    call.record.turns[1].text = "!!!!!!!!".into();
    let result = aligned(&call);
    assert_eq!(result.sidecar.turns.iter().map(|t| t.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(result.sidecar.alignments[3].0, "15.09.2021");
    for text in ["", " ", "\u{2026}", "\u{1f600}", "\u{4f60}\u{597d}", "!"] {
        call.record.turns[1].text = text.into();
        assert_eq!(aligned(&call).sidecar.turns.len(), 4, "{text:?}");
    }
    call.record.turns[1].text = "word ".repeat(60).trim().into();
    let result = aligned(&call);
    assert_eq!(result.sidecar.alignments.iter().filter(|w| w.0 == "word").count(), 60);
    has(&result, "turn 1 is without a measured word");
    call.record.turns[1].text = "word ".repeat(6000).trim().into();
    has(&aligned(&call), "turn 1 is too short for its words");
}

#[test]
fn windows_without_sound_beyond_the_end_or_of_single_samples_are_survived() {
    let call = spoken(&["Hello there", "Fine thanks"]);
    for samples in [0usize, 1, 160, 399, 400, 24_000] {
        let mut short = spoken(&["Hello there", "Fine thanks"]);
        short.mono = Waveform::mono(24_000, call.mono.channels[0][..samples].to_vec());
        let result =
            align_acoustically(&ALIGNER, &short.record, &short.report, &short.mono, &Limits::default());
        let result = result.expect("aligns");
        assert_eq!(result.sidecar.turns.len(), 2, "{samples}");
        assert!(!result.faults.is_empty(), "{samples}");
    }
}

#[test]
fn a_spelled_number_ends_with_its_sound_and_the_next_word_starts_behind_it() {
    let call = spoken(&["It is EM3985771 thanks", "Right"]);
    let result = aligned(&call);
    let truth = call.report.words.as_ref().expect("words");
    let (number, next) = (&result.sidecar.alignments[2], &result.sidecar.alignments[3]);
    assert_eq!(number.0, "EM3985771");
    assert!((number.1.1 * 1000.0 - truth[2].end_ms as f64).abs() < 200.0, "{number:?} {:?}", truth[2]);
    assert!(next.1.0 * 1000.0 > truth[2].end_ms as f64 - 60.0, "{next:?} {:?}", truth[2]);
}

#[test]
fn numbers_in_digits_move_no_other_word() {
    let written = "Your policy number is 2266 okay, that is $43,000. call 11";
    let call = spoken(&[written, "Yes"]);
    let mut words = spoken(&[written, "Yes"]);
    words.record.turns[0].text = spoken::normalise(written).words.join(" ");
    let (digits, words) = (aligned(&call), aligned(&words));
    let of =
        |a: &Aligned, word: &str| a.sidecar.alignments.iter().find(|w| w.0.starts_with(word)).map(|w| w.1);
    for word in ["Your", "policy", "number", "is", "okay", "that", "call"] {
        let (a, b) = (of(&digits, word), of(&words, &word.to_lowercase()));
        let (a, b) = (a.expect("a word"), b.expect("a word"));
        assert!((a.0 - b.0).abs() < 0.08 && (a.1 - b.1).abs() < 0.08, "{word} {a:?} {b:?}");
    }
}

#[test]
fn sound_of_another_script_or_rate_is_refused() {
    let mut call = spoken(&["Hello there", "Fine thanks"]);
    call.mono.rate = 16_000;
    let limits = Limits::default();
    let error =
        align_acoustically(&ALIGNER, &call.record, &call.report, &call.mono, &limits).expect_err("rate");
    assert!(matches!(error, AlignError::Format { rate: 16_000, .. }), "{error}");
    let mut call = spoken(&["Hello there", "Fine thanks"]);
    call.record.turns[0].speaker = Speaker::User;
    let error =
        align_acoustically(&ALIGNER, &call.record, &call.report, &call.mono, &limits).expect_err("turn");
    assert!(matches!(error, AlignError::TurnMismatch { position: 0, .. }), "{error}");
}
