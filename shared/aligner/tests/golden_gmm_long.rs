//! Long and short sound, any text: bounded windows, no word without a time, no crash.

use std::path::Path;
use std::sync::LazyLock;

use aligner::lexicon::Source;
use aligner::{Aligner, Deviations, Verdict, WordTime};
use anyhow::{Context, Result};
use proptest::prelude::*;
use testkit::{golden_json, golden_path};

static ALIGNER: LazyLock<Aligner> = LazyLock::new(|| {
    Aligner::open(Path::new("/usr/share/pocketsphinx/model/en-us")).expect("pocketsphinx-en-us is installed")
});

static SPEECH: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let path = golden_path("speech/gmm_align/flite_slt.wav").expect("golden data");
    let bytes = std::fs::read(path).expect("readable");
    bytes[44..].chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32_768.0).collect()
});

fn script() -> Result<Vec<String>> {
    let io = golden_json("speech/gmm_align/io.json")?;
    let text = io["utts"]["flite_slt"]["text"].as_str().context("a text")?.to_owned();
    Ok(text.split(' ').map(str::to_owned).collect())
}

fn assert_in_order(times: &[WordTime], words: usize, duration_ms: u64) {
    assert_eq!(times.len(), words);
    let mut at = 0;
    for time in times {
        assert!(
            time.start_ms >= at && time.end_ms >= time.start_ms && time.end_ms <= duration_ms,
            "{times:?}"
        );
        assert!((0.0..=1.0).contains(&time.confidence), "{time:?}");
        at = time.end_ms;
    }
}

#[test]
fn windows_of_long_sound_give_the_times_of_its_parts() -> Result<()> {
    let (part, words) = (script()?, 15);
    let samples: Vec<f32> = (0..words).flat_map(|_| SPEECH.iter().copied()).collect();
    let script: Vec<&str> = (0..words).flat_map(|_| part.iter().map(String::as_str)).collect();
    let sound = ALIGNER.sound(&samples);
    let long = ALIGNER.align(&sound, &script);
    assert_in_order(&long, script.len(), sound.duration_ms());
    let own: Vec<&str> = part.iter().map(String::as_str).collect();
    let single = ALIGNER.align(&ALIGNER.sound(&SPEECH), &own);
    for (i, time) in long.iter().enumerate() {
        let start = (i / own.len() * SPEECH.len() / 16) as u64 + single[i % own.len()].start_ms;
        assert!(!time.estimated && time.start_ms.abs_diff(start) <= 30, "word {i}: {time:?}, not {start}");
    }
    // Too long to be checked for deviations: aligned all the same, and said to be unchecked.
    let reading = ALIGNER.check(&sound, &script, &Deviations::default());
    assert!(reading.aligned && reading.verdicts.iter().all(|v| *v == Verdict::Unknown));
    Ok(())
}

#[test]
fn a_long_pause_before_between_and_after_words_is_no_obstacle() -> Result<()> {
    let part = script()?;
    let own: Vec<&str> = part.iter().map(String::as_str).collect();
    let pause = vec![0.0; 40 * 16_000];
    let samples = [&pause[..], &SPEECH, &pause, &SPEECH, &pause].concat();
    let script = [&own[..], &own].concat();
    let times = ALIGNER.align(&ALIGNER.sound(&samples), &script);
    let single = ALIGNER.align(&ALIGNER.sound(&SPEECH), &own);
    for (i, time) in times.iter().enumerate() {
        let copy = i / own.len();
        let start =
            (copy * SPEECH.len() / 16) as u64 + 40_000 * (copy as u64 + 1) + single[i % own.len()].start_ms;
        assert!(!time.estimated && time.start_ms.abs_diff(start) <= 50, "word {i}: {time:?}, not {start}");
    }
    Ok(())
}

#[test]
fn more_words_than_sound_are_spread_over_it_and_marked() {
    let words = ["word"; 60];
    let sound = ALIGNER.sound(&SPEECH[..16_000]);
    let reading = ALIGNER.check(&sound, &words, &Deviations { skip: 0, back: 0, ..Deviations::default() });
    assert_in_order(&reading.words, 60, 1000);
    assert!(!reading.aligned && reading.words.iter().all(|w| w.estimated && w.start_ms < w.end_ms));
}

#[test]
fn equal_sound_gives_equal_times() -> Result<()> {
    let part = script()?;
    let own: Vec<&str> = part.iter().map(String::as_str).collect();
    let first = ALIGNER.align(&ALIGNER.sound(&SPEECH), &own);
    assert_eq!(first, ALIGNER.align(&ALIGNER.sound(&SPEECH), &own));
    assert!(first.iter().all(|w| w.confidence > 0.8), "{first:?}");
    let other = ["purple", "umbrellas", "march", "quickly", "across", "kansas"];
    let wrong = ALIGNER.align(&ALIGNER.sound(&SPEECH), &other);
    let mean = wrong.iter().map(|w| w.confidence).sum::<f32>() / 6.0;
    assert!(mean < 0.7 && wrong.iter().any(|w| w.confidence < 0.2), "{wrong:?}");
    Ok(())
}

#[test]
fn words_outside_the_dictionary_are_pronounced_from_parts_letters_or_rules() {
    let lexicon = ALIGNER.lexicon();
    let names = ALIGNER.model().phones().names();
    let said = |word: &str| -> Vec<String> {
        let phones = |one: &Vec<u8>| one.iter().map(|p| names[usize::from(*p)].as_str()).collect::<Vec<_>>();
        lexicon.pronounce(word).0.iter().map(|one| phones(one).join(" ")).collect()
    };
    assert_eq!(lexicon.pronounce("Dizziness").1, Source::Dictionary);
    assert!(said("plexforge's").iter().any(|s| s.ends_with("JH AH Z")), "{:?}", said("plexforge's"));
    assert!(said("northgate").contains(&"N AO R TH G EY T".to_owned()), "{:?}", said("northgate"));
    assert_eq!(said("xqz"), ["EH K S K Y UW Z IY"]);
    assert!(said("e").contains(&"IY".to_owned()));
    assert!(said("metformin").iter().any(|s| s == "M EH T F AO R M IH N"), "{:?}", said("metformin"));
    assert_eq!(lexicon.pronounce("\u{4f60}\u{597d}"), (Vec::new(), Source::Nothing));
    // Rules alone, on every hundredth word of the dictionary's own spelling; seen words, so an upper bound.
    let words =
        ["insurance", "pharmacy", "deductible", "policy", "yesterday", "remember", "question", "tomorrow"];
    let right =
        words.iter().filter(|w| lexicon.spell_out(w).iter().any(|s| lexicon.pronounce(w).0.contains(s)));
    assert!(right.count() >= 7, "rules know most frequent words");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_text_over_any_sound_gives_ordered_times(
        words in prop::collection::vec(
            prop_oneof![
                "\\PC{0,12}",
                "[a-z']{1,30}",
                Just("\u{1f600}".to_owned()),
                Just(String::new()),
                Just("!!!!".to_owned()),
                Just("hello".to_owned()),
            ],
            0..12,
        ),
        length in prop_oneof![
            prop::sample::select(vec![0usize, 1, 159, 160, 399, 400, 409, 410, 411, 1600]),
            0usize..60_000,
        ],
        gain in prop::sample::select(vec![0.0f32, 1.0, 100.0, f32::NAN]),
        checked in any::<bool>(),
    ) {
        let samples: Vec<f32> = SPEECH.iter().take(length).map(|s| s * gain).collect();
        let script: Vec<&str> = words.iter().map(String::as_str).collect();
        let sound = ALIGNER.sound(&samples);
        let reading = if checked {
            ALIGNER.check(&sound, &script, &Deviations::default())
        } else {
            aligner::Reading {
                words: ALIGNER.align(&sound, &script),
                verdicts: vec![Verdict::Unknown; script.len()],
                heard: Vec::new(),
                aligned: true,
            }
        };
        assert_in_order(&reading.words, script.len(), sound.duration_ms());
        prop_assert_eq!(reading.verdicts.len(), script.len());
        for heard in &reading.heard {
            prop_assert!(heard.word.is_none_or(|w| w < script.len()) && heard.start_ms <= heard.end_ms);
        }
    }
}
