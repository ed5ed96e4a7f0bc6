//! What comes out of flite, measured.

mod common;

use audio::levels::{frame_levels, peak, rms_dbfs};
use audio::loudness::{TARGET_LUFS, integrated_lufs};
use common::{CALL, record};
use domain::dialogue::Speaker;
use domain::frame::{SAMPLE_RATE, ms_to_samples};
use domain::render::RenderReport;
use tts::render::{Rendering, render};
use tts::say::Speech;
use tts::{FliteEngine, SpeechEngine, TtsError};

fn rendered(id: &str, texts: &[&str]) -> Rendering {
    render(&record(id, texts), &FliteEngine::new(), 3000).expect("renders")
}

fn between(rendering: &Rendering, start_ms: u64, end_ms: u64) -> &[f32] {
    let at = |ms| usize::try_from(ms_to_samples(ms, SAMPLE_RATE)).expect("small");
    &rendering.wave.channels[0][at(start_ms)..at(end_ms)]
}

fn words(report: &RenderReport) -> &[domain::alignment::AlignedWord] {
    report.words.as_deref().expect("flite reports words")
}

#[test]
fn a_dialogue_is_audible_at_the_house_rate_with_ascending_word_times() {
    let rendering = rendered("dial-00001", &CALL);
    assert_eq!((rendering.wave.rate, rendering.wave.channels.len()), (SAMPLE_RATE, 1));
    assert_eq!(rendering.wave.duration_ms(), rendering.report.duration_ms);
    assert!(peak(&rendering.wave.channels[0]) <= 0.951);
    let written: Vec<&str> = CALL.iter().flat_map(|t| t.split_whitespace()).collect();
    let words = words(&rendering.report);
    assert_eq!(words.iter().map(|w| w.word.as_str()).collect::<Vec<_>>(), written);
    for word in words {
        assert!(!word.estimated && word.start_ms < word.end_ms, "{word:?}");
        assert!(word.end_ms <= rendering.report.duration_ms, "{word:?}");
        let level = rms_dbfs(between(&rendering, word.start_ms, word.end_ms));
        assert!(level > -50.0, "{word:?} is at {level} dBFS");
    }
    for pair in words.windows(2) {
        assert!(pair[0].end_ms <= pair[1].start_ms, "{pair:?}");
    }
    let of = |speaker| {
        let turns = rendering.report.turns.iter().filter(move |t| t.speaker == speaker);
        let samples = turns.flat_map(|t| between(&rendering, t.start_ms, t.end_ms).iter().copied()).collect();
        integrated_lufs(&audio::Waveform::mono(SAMPLE_RATE, samples)).expect("loud enough")
    };
    for speaker in [Speaker::Agent, Speaker::User] {
        assert!((of(speaker) - TARGET_LUFS).abs() < 1.0, "{speaker:?} at {} LUFS", of(speaker));
    }
    for turn in rendering.report.turns.windows(2) {
        let gap = turn[1].start_ms - turn[0].end_ms;
        assert!((300..=650).contains(&gap), "gap {gap} ms");
        let pause = between(&rendering, turn[0].end_ms + 90, turn[1].start_ms - 45);
        assert!(rms_dbfs(pause) < -90.0, "the pause is silent");
    }
}

#[test]
fn every_voice_starts_and_ends_where_its_word_times_say() {
    let engine = FliteEngine::new();
    for voice in ["slt", "rms", "awb", "kal16"] {
        let speech = Speech::of("Today we pay one hundred and six dollars, okay?");
        let said = engine.synthesize(voice, &speech.words).expect("speaks");
        let spans: Vec<_> = said.words.iter().map(|w| w.expect("every word has a time")).collect();
        assert!(spans.windows(2).all(|p| p[0].1 <= p[1].0), "{voice}: {spans:?}");
        let levels = frame_levels(&said.samples, said.rate as usize / 100);
        let loudest = levels.iter().copied().fold(f32::MIN, f32::max);
        let loud = |l: &f32| *l > loudest - 30.0;
        let onset = levels.iter().position(loud).expect("sound") as i64 * 10;
        let offset = levels.iter().rposition(loud).expect("sound") as i64 * 10 + 10;
        assert!(
            (spans[0].0 as i64 - onset).abs() <= 100,
            "{voice}: {} but sound from {onset} ms",
            spans[0].0
        );
        let end = spans[spans.len() - 1].1 as i64;
        assert!((end - offset).abs() <= 150, "{voice}: {end} but sound to {offset} ms");
    }
}

#[test]
fn the_same_dialogue_gives_the_same_bytes_in_any_order_and_ids_choose_the_voices() {
    let first = rendered("dial-00001", &CALL);
    let other = rendered("dial-00002", &CALL);
    let again = rendered("dial-00001", &CALL);
    assert_eq!(first.report, again.report);
    let bytes = |r: &Rendering| audio::wav::encode_pcm16(&r.wave).expect("encodes");
    assert!(bytes(&first) == bytes(&again), "the sound differs");
    assert_ne!(bytes(&first), bytes(&other));
    let casts: std::collections::BTreeSet<_> = (0..40)
        .map(|i| {
            let cast = tts::voices::Cast::of(&format!("dial-{i:05}"), &FliteEngine::new());
            assert_ne!(cast.agent, cast.user);
            (cast.agent, cast.user)
        })
        .collect();
    assert!(casts.len() >= 4, "{casts:?}");
}

#[test]
fn turns_without_words_keep_their_place_and_nothing_crashes() {
    let texts = [
        "Hello there.",
        "!!!!!!!!",
        "15.09.2021",
        "\u{2026}",
        " ",
        "",
        "\u{1f600}",
        "[sighs] Well - \u{1f600} bye.",
    ];
    let Rendering { wave, report } = rendered("odd", &texts);
    assert_eq!(report.turns.len(), texts.len());
    for (i, turn) in report.turns.iter().enumerate() {
        assert_eq!(turn.index as usize, i);
        assert_eq!(turn.text, texts[i]);
        assert!(turn.start_ms <= turn.end_ms && turn.end_ms <= wave.duration_ms());
        assert_eq!(turn.start_ms < turn.end_ms, matches!(i, 0 | 2 | 7), "{turn:?}");
    }
    let spoken: Vec<(&str, bool)> = words(&report).iter().map(|w| (w.word.as_str(), w.estimated)).collect();
    let expected = [
        ("Hello", false),
        ("there.", false),
        ("15.09.2021", false),
        ("Well", false),
        ("-", true),
        ("\u{1f600}", true),
        ("bye.", false),
    ];
    assert_eq!(spoken, expected);
    let nothing = rendered("nothing", &["!!!", "\u{1f600}"]);
    assert!(words(&nothing.report).is_empty());
    assert!(rms_dbfs(&nothing.wave.channels[0]) < -100.0);
}

#[test]
fn long_and_strange_words_do_not_reach_the_c_library_as_they_are() {
    let long =
        format!("{} %n%s%p \u{0} ../../etc <script> \u{202e}abc {}", "a".repeat(4000), "9".repeat(300));
    let rendering = rendered("strange", &[&long, "Fine."]);
    assert!(words(&rendering.report).last().is_some_and(|w| w.word == "Fine."));
}

#[test]
fn scripts_over_the_limit_are_refused_with_the_limit() {
    let long = "word ".repeat(3001);
    let error = render(&record("long", &[&long]), &FliteEngine::new(), 3000).expect_err("too long");
    assert!(matches!(error, TtsError::TooLong { words: 3001, limit: 3000, .. }), "{error}");
    assert!(error.to_string().contains("3000"));
    let mut wrong = record("index", &CALL);
    wrong.turns[2].index = 7;
    let error = render(&wrong, &FliteEngine::new(), 3000).expect_err("index");
    assert!(error.to_string().contains("turn 2 has the index 7"), "{error}");
}

#[test]
fn reference_clips_are_four_to_six_seconds_and_audible() {
    for voice in ["slt", "rms", "awb"] {
        let clip = tts::voices::reference_clip(&FliteEngine::new(), voice).expect("speaks");
        assert!((4000..=6000).contains(&clip.duration_ms()), "{voice}: {} ms", clip.duration_ms());
        assert!(rms_dbfs(&clip.channels[0]) > -35.0);
    }
    let error = tts::voices::reference_clip(&FliteEngine::new(), "nobody").expect_err("unknown");
    assert!(error.to_string().contains("slt, rms, awb, kal16"), "{error}");
}
