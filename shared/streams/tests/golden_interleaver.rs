//! Text tokens on the frame grid against the published interleaver (`finetune/a_interleaver`).

mod common;

use common::{TestResult, cases, golden_json, ints, tokenizer};
use serde_json::Value;
use streams::text_stream::{Overflow, TextStreamConfig, Word, lay_out, lay_out_seconds};
use streams::tokens::PAD;

type TimedWord = (String, f64, f64, bool);

fn words(alignments: &Value, main: &str) -> Option<Vec<TimedWord>> {
    let list: Vec<(String, (f64, f64), String)> = serde_json::from_value(alignments.clone()).ok()?;
    Some(list.into_iter().map(|(w, (s, e), label)| (w, s, e, label == main)).collect())
}

fn config(value: &Value) -> TextStreamConfig {
    TextStreamConfig {
        keep_main_only: value["keep_main_only"] == true,
        use_bos_eos: value["use_bos_eos"] == true,
        audio_delay_ms: 0,
        in_word_padding: value["in_word_padding"].as_i64().and_then(|v| v.try_into().ok()).unwrap_or(PAD),
        overflow: if value["keep_and_shift"] == true { Overflow::Shift } else { Overflow::Drop },
    }
}

#[test]
fn probes_tokenize_as_in_training_and_serving() -> TestResult {
    let tokenizer = tokenizer()?;
    let probes = golden_json("finetune/a_interleaver/tokenize_probes.json")?;
    for probe in cases(&probes) {
        let text = probe["text"].as_str().ok_or("text")?;
        assert_eq!(tokenizer.encode(text)?, ints(&probe["ids_encode"]), "encode {text:?}");
        assert_eq!(tokenizer.word_tokens(text)?, ints(&probe["ids_tokenize_bos_false"]), "word {text:?}");
    }
    Ok(())
}

#[test]
fn every_published_stream_is_repeated_exactly() -> TestResult {
    let tokenizer = tokenizer()?;
    let golden = golden_json("finetune/a_interleaver/token_streams.json")?;
    assert_eq!(cases(&golden["cases"]).len(), 16);
    for case in cases(&golden["cases"]) {
        let main = case["config"]["main_speaker_label"].as_str().unwrap_or_default();
        let words = words(&case["alignments"], main);
        let seconds = case["segment_seconds"].as_f64().ok_or("segment_seconds")?;
        let delay = case["config"]["audio_delay"].as_f64().ok_or("audio_delay")?;
        let stream = lay_out_seconds(words.as_deref(), seconds, delay, &tokenizer, &config(&case["config"]))?;
        assert_eq!(stream.tokens, ints(&case["tokens"]), "{}", case["name"]);
    }
    Ok(())
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "test data are whole milliseconds")]
fn integer_milliseconds_give_the_same_streams_on_these_cases() -> TestResult {
    let tokenizer = tokenizer()?;
    let golden = golden_json("finetune/a_interleaver/token_streams.json")?;
    for case in cases(&golden["cases"]).iter().filter(|c| c["name"] != "none_alignments") {
        let main = case["config"]["main_speaker_label"].as_str().unwrap_or_default();
        let ms = |seconds: f64| (seconds * 1000.0).round() as i64;
        let words: Vec<Word> = words(&case["alignments"], main)
            .unwrap_or_default()
            .into_iter()
            .map(|(text, s, e, is_main)| Word { text, start_ms: ms(s), end_ms: ms(e), is_main })
            .collect();
        let config = TextStreamConfig {
            audio_delay_ms: ms(case["config"]["audio_delay"].as_f64().ok_or("audio_delay")?),
            ..config(&case["config"])
        };
        let frames = usize::try_from(case["n_frames"].as_u64().ok_or("n_frames")?)?;
        let stream = lay_out(&words, frames, &tokenizer, &config)?;
        assert_eq!(stream.tokens, ints(&case["tokens"]), "{}", case["name"]);
    }
    Ok(())
}

#[test]
fn full_chunks_of_the_published_grids_have_our_text_row() -> TestResult {
    let tokenizer = tokenizer()?;
    let golden = golden_json("finetune/a_interleaver/grids.json")?;
    let all =
        words(&golden["alignments"], golden["main_speaker"].as_str().unwrap_or_default()).ok_or("words")?;
    for chunk in cases(&golden["chunks"]).iter().filter(|c| c["wav_seconds"] == c["duration_sec"]) {
        let start = chunk["start_sec"].as_f64().ok_or("start_sec")?;
        let duration = chunk["duration_sec"].as_f64().ok_or("duration_sec")?;
        // The reference takes the words whose start lies in the chunk; a word that began before is gone.
        let inside: Vec<TimedWord> = all
            .iter()
            .filter(|w| w.1 >= start && w.1 < start + duration)
            .map(|w| (w.0.clone(), w.1 - start, w.2 - start, w.3))
            .collect();
        let config = TextStreamConfig::default();
        let stream = lay_out_seconds(Some(&inside), duration, 0.0, &tokenizer, &config)?;
        assert_eq!(stream.tokens, ints(&chunk["codes"][0]), "{}", chunk["name"]);
    }
    Ok(())
}

#[test]
fn lost_tokens_are_counted_and_bounded_shift_loses_fewer() -> TestResult {
    let tokenizer = tokenizer()?;
    let word = |text: &str, start_ms, end_ms| Word { text: text.into(), start_ms, end_ms, is_main: true };
    let words = [word("antidisestablishmentarianism", 200, 1600), word("okay", 360, 700)];
    let run =
        |overflow| lay_out(&words, 40, &tokenizer, &TextStreamConfig { overflow, ..Default::default() });
    let dropped = run(Overflow::Drop)?.stats;
    assert_eq!((dropped.tokens, dropped.tokens_dropped), (20, 13));
    assert_eq!(run(Overflow::ShiftBounded)?.stats.tokens_dropped, 1);
    assert_eq!(run(Overflow::Shift)?.stats.tokens_dropped, 0);
    assert!(dropped.dropped_share() > 0.6);
    Ok(())
}

#[test]
fn a_positive_delay_moves_text_earlier_and_a_negative_one_later() -> TestResult {
    let tokenizer = tokenizer()?;
    let words = [Word { text: "yes".into(), start_ms: 800, end_ms: 1200, is_main: true }];
    let first = |audio_delay_ms| -> Result<_, streams::StreamsError> {
        let config = TextStreamConfig { audio_delay_ms, ..Default::default() };
        let stream = lay_out(&words, 30, &tokenizer, &config)?;
        Ok((stream.tokens.iter().position(|&t| t > PAD), stream.tokens[0]))
    };
    assert_eq!(first(0)?, (Some(10), PAD));
    assert_eq!(first(240)?, (Some(7), PAD));
    assert_eq!(first(-240)?, (Some(13), -1));
    Ok(())
}
