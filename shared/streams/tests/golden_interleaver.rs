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

/// Words whose start lies in the chunk, as the reference bisects them; a word that began before is gone.
fn inside(all: &[TimedWord], start: f64, duration: f64) -> Vec<TimedWord> {
    let from = all.partition_point(|w| w.1 < start);
    let to = all.partition_point(|w| w.1 < start + duration);
    all[from..to].iter().map(|w| (w.0.clone(), w.1 - start, w.2 - start, w.3)).collect()
}

fn mock_codes(side: usize, frame: usize) -> streams::Codes {
    std::array::from_fn(|k| i32::try_from((1009 * side + 131 * k + 17 * frame + 5) % 2048).unwrap_or(-1))
}

/// The reference's grid: text laid on `12.5 * frames` seconds-taken-for-frames, cropped to the window, -1 beyond.
fn reference_grid(text: &[i32], audio: usize, window: usize) -> Vec<streams::Frame> {
    (0..window)
        .map(|t| {
            let mut f = streams::EMPTY_FRAME;
            if t < audio {
                f = streams::layout::frame(0, &mock_codes(0, t), &mock_codes(1, t));
            }
            f[0] = text.get(t).copied().unwrap_or(-1);
            f
        })
        .collect()
}

#[test]
fn every_published_grid_is_repeated_in_all_17_rows() -> TestResult {
    let tokenizer = tokenizer()?;
    let golden = golden_json("finetune/a_interleaver/grids.json")?;
    let all =
        words(&golden["alignments"], golden["main_speaker"].as_str().unwrap_or_default()).ok_or("words")?;
    assert_eq!(cases(&golden["chunks"]).len(), 4);
    for chunk in cases(&golden["chunks"]) {
        let start = chunk["start_sec"].as_f64().ok_or("start_sec")?;
        let duration = chunk["duration_sec"].as_f64().ok_or("duration_sec")?;
        let wav = chunk["wav_seconds"].as_f64().ok_or("wav_seconds")?;
        let (audio, window) = (frame_count(wav), frame_count(duration));
        let taken_for_seconds = f64::from(u32::try_from(audio)?);
        let config = TextStreamConfig::default();
        let here = inside(&all, start, duration);
        let text = lay_out_seconds(Some(&here), taken_for_seconds, 0.0, &tokenizer, &config)?.tokens;
        let grid = reference_grid(&text, audio, window);
        for row in 0..streams::CHANNELS {
            let ours: Vec<i32> = grid.iter().map(|f| f[row]).collect();
            assert_eq!(ours, ints(&chunk["codes"][row]), "{} row {row}", chunk["name"]);
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data are short")]
fn frame_count(seconds: f64) -> usize {
    (seconds * 12.5).ceil() as usize
}

#[test]
fn product_windows_are_minus_one_beyond_the_audio_in_all_17_rows() -> TestResult {
    use streams::{DialogueInput, PromptCodes, PromptInput, ViewConfig, WindowConfig, build_dialogue};
    let tokenizer = tokenizer()?;
    let codes: Vec<Vec<streams::Codes>> =
        (0..2).map(|side| (0..9).map(|t| mock_codes(side, t)).collect()).collect();
    let input = DialogueInput { words: &[], injections: &[], agent_codes: &codes[0], user_codes: &codes[1] };
    let view = build_dialogue(&input, &tokenizer, &ViewConfig::default())?;
    let prompt = PromptInput::new("", &[]);
    let mut set = view.windows(&prompt, &tokenizer, &WindowConfig::new(250), &PromptCodes::default())?;
    let window = &mut set.windows[0];
    window.pad_to(50);
    assert!(window.frames[..9].iter().all(|f| f.iter().all(|&v| v >= 0)));
    assert!(window.frames[9..].iter().all(|f| *f == streams::EMPTY_FRAME));
    Ok(())
}

#[test]
fn starts_are_bisected_as_published() -> TestResult {
    for case in cases(&golden_json("finetune/a_interleaver/bisect.json")?) {
        let starts: Vec<f64> = serde_json::from_value(case["starts"].clone())?;
        let value = case["value"].as_f64().ok_or("value")?;
        assert_eq!(serde_json::json!(starts.partition_point(|s| *s < value)), case["index"], "{value}");
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

/// A17: three words, one token each here, on an explicit grid for each sign.
#[test]
fn a_positive_delay_moves_text_earlier_and_a_negative_one_later() -> TestResult {
    let tokenizer = tokenizer()?;
    let word = |start_ms| Word { text: "you".into(), start_ms, end_ms: start_ms + 80, is_main: true };
    let words = [word(80), word(480), word(960)];
    let yes = tokenizer.word_tokens("you")?;
    let &[y] = yes.as_slice() else { return Err(format!("one token expected: {yes:?}").into()) };
    let grid = |audio_delay_ms| -> Result<_, streams::StreamsError> {
        let config = TextStreamConfig { audio_delay_ms, ..Default::default() };
        lay_out(&words, 16, &tokenizer, &config)
    };
    assert_eq!(grid(0)?.tokens, [0, y, 3, 3, 3, 0, y, 3, 3, 3, 3, 0, y, 3, 3, 3]);
    // 240 ms: three frames earlier; the first word ends before the delay and is gone.
    assert_eq!(grid(240)?.tokens, [3, 3, 0, y, 3, 3, 3, 3, 0, y, 3, 3, 3, 3, 3, 3]);
    assert_eq!(grid(240)?.stats.words_dropped, 1);
    // -240 ms: three frames later; nothing is known of the first three.
    assert_eq!(grid(-240)?.tokens, [-1, -1, -1, 0, y, 3, 3, 3, 0, y, 3, 3, 3, 3, 0, y]);
    Ok(())
}

#[test]
fn lost_tokens_are_judged_at_two_and_ten_percent() {
    use streams::text_stream::{Severity, TextStreamStats};
    let judge = |tokens_dropped| {
        TextStreamStats { words: 1, words_dropped: 0, tokens: 1000, tokens_dropped }.severity()
    };
    assert_eq!(
        [0, 20, 21, 100, 101].map(judge),
        [Severity::Ok, Severity::Ok, Severity::Warn, Severity::Warn, Severity::Fail]
    );
    assert_eq!(TextStreamStats::default().severity(), Severity::Ok);
}
