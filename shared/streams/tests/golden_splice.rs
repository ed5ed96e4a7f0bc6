//! Prefix, splice, windows and offsets against `finetune/f_splice`; delays against `personaplex/units`.

mod common;

use common::{TestResult, cases, frames, golden, golden_json, ints, spans, tokenizer};
use domain::alignment::AlignedTurn;
use domain::dialogue::Speaker;
use domain::frame::{frame_ceil, frame_floor};
use domain::injection::{Injection, Placement};
use serde_json::{Value, json};
use streams::offsets::{OffsetReport, place_after_turn, place_injections};
use streams::splice::{SpliceInput, Timeline, insert_copy_user, splice};
use streams::tokenizer::wrap_system;
use streams::windows::{WindowRules, cut_windows};
use streams::{Codes, PromptCodes, StreamsError, SystemPrompt, delays};

fn size(value: &Value) -> usize {
    value.as_u64().and_then(|v| v.try_into().ok()).expect("a size")
}

fn injections(case: &Value) -> Vec<SpliceInput> {
    cases(&case["injections"])
        .iter()
        .map(|i| SpliceInput { anchor: size(&i[0]), tokens: ints(&i[1]) })
        .collect()
}

#[test]
fn the_prefix_is_the_published_one() -> TestResult {
    let g = golden_json("finetune/f_splice/prefix.json")?;
    let text = g["text_prompt"].as_str().ok_or("text_prompt")?;
    assert_eq!(wrap_system(text), g["wrapped"]);
    let tokens = tokenizer()?.system_tokens(text)?;
    assert_eq!(tokens, ints(&g["text_ids"]));
    let voice: Vec<Codes> = serde_json::from_value(g["voice_frames"].clone())?;
    let prompt = SystemPrompt { voice, tokens, silence_frames: size(&g["audio_silence_frames"]) };
    assert_eq!(prompt.len(), size(&g["prompt_length"]));
    assert_eq!(prompt.frames(&PromptCodes::default()), frames(&g["frames"]));
    Ok(())
}

#[test]
fn splices_equal_the_specified_ones() -> TestResult {
    let g = golden_json("finetune/f_splice/splice.json")?;
    let codes = PromptCodes::default();
    for case in cases(&g["cases"]) {
        let name = &case["name"];
        let input = if case["input_frames"].is_null() { &g["frames"] } else { &case["input_frames"] };
        let user_words = if case["user_words"].is_null() { &g["user_words"] } else { &case["user_words"] };
        let mask: Vec<bool> = ints(&case["context_mask"]).into_iter().map(|v| v == 1).collect();
        if case["mode"] == "insert_copy_user" {
            let out =
                insert_copy_user(&frames(input), &injections(case), size(&case["window_frames"]), &codes);
            assert_eq!(out.frames, frames(&case["frames"]), "{name}");
            assert_eq!((out.context_mask, out.spans), (mask, spans(&case["spans_before_trim"])), "{name}");
            continue;
        }
        let timeline = Timeline::new(frames(input), spans(&g["agent_words"]), &spans(user_words));
        let out = splice(timeline, &injections(case), size(&case["guard"]), &codes)?;
        assert_eq!(out.timeline.frames, frames(&case["frames"]), "{name}");
        assert_eq!(out.context_mask, mask, "{name}");
        let busy = |v: &[bool]| v.iter().map(|&b| i32::from(b)).collect::<Vec<_>>();
        assert_eq!(busy(&out.timeline.agent_busy), ints(&case["agent_busy"]), "{name}");
        assert_eq!(busy(&out.timeline.user_busy), ints(&case["user_busy"]), "{name}");
        for (record, expected) in out.records.iter().zip(cases(&case["records"])) {
            let mut got = serde_json::to_value(record)?;
            got.as_object_mut().ok_or("object")?.shift_remove("injection");
            assert_eq!(&got, expected, "{name}");
        }
        assert_eq!(out.records.len(), cases(&case["records"]).len(), "{name}");
    }
    Ok(())
}

#[test]
fn windows_equal_the_specified_ones() -> TestResult {
    let g = golden_json("finetune/f_splice/windows.json")?;
    for case in cases(&g) {
        let rules = WindowRules {
            lookback: size(&case["lookback"]),
            min_post: size(&case["min_post"]),
            min_window: size(&case["min_window"]),
            ..WindowRules::default()
        };
        let (context, words) = (spans(&case["context_spans"]), spans(&case["agent_words"]));
        let window = size(&case["window_frames"]);
        let cut = cut_windows(size(&case["total_frames"]), &context, &words, &rules, |_| Ok(window))?;
        assert_eq!(cut.windows, spans(&case["windows"]), "{}", case["name"]);
    }
    Ok(())
}

fn turns(g: &Value) -> Result<Vec<AlignedTurn>, Box<dyn std::error::Error>> {
    let ms = |v: &Value| -> Result<u64, Box<dyn std::error::Error>> {
        Ok(format!("{:.0}", v.as_f64().ok_or("seconds")? * 1000.0).parse()?)
    };
    cases(&g["turns"])
        .iter()
        .map(|t| {
            let agent = t["speaker"] == "SPEAKER_BROKER";
            Ok(AlignedTurn {
                index: u32::try_from(size(&t["index"]))?,
                speaker: if agent { Speaker::Agent } else { Speaker::User },
                start_ms: ms(&t["start"])?,
                end_ms: ms(&t["end"])?,
                text: String::new(),
            })
        })
        .collect()
}

#[test]
fn offsets_equal_the_specified_ones() -> TestResult {
    let g = golden_json("finetune/f_splice/offsets.json")?;
    let turns = turns(&g)?;
    for case in cases(&g["offsets"]) {
        // A negative index cannot be expressed in the domain type.
        let Some(after_turn) = case["after_turn"].as_u64() else { continue };
        let after_turn = u32::try_from(after_turn)?;
        match (place_after_turn(after_turn, &turns), case["placement"].as_str()) {
            (Ok((frame, placement)), Some(expected)) => {
                assert_eq!(json!(frame), case["frame_offset"], "after turn {after_turn}");
                assert_eq!(placement == Placement::Proactive, expected == "proactive");
            }
            (Err(e), None) => {
                assert_eq!(e, StreamsError::AfterTurnOutOfRange { after_turn, turns: turns.len() });
            }
            (got, expected) => panic!("after turn {after_turn}: {got:?}, expected {expected:?}"),
        }
    }
    for row in cases(&g["frame_conversion"]) {
        let ms = row["ms"].as_u64().ok_or("ms")?;
        assert_eq!(
            (json!(frame_floor(ms)), json!(frame_ceil(ms))),
            (row["floor_exact"].clone(), row["ceil_exact"].clone())
        );
    }
    Ok(())
}

#[test]
fn placing_twice_changes_nothing_and_an_offset_past_the_end_is_refused() -> TestResult {
    let turns = turns(&golden_json("finetune/f_splice/offsets.json")?)?;
    let injection = |after_turn| Injection { after_turn, text: "quote it".into(), frame_offset: None };
    let mut list = [injection(1), injection(2), injection(3)];
    let first = place_injections(&mut list, &turns, 200)?;
    assert_eq!(first, OffsetReport { proactive: 2, reactive: 1, changed: 3 });
    assert_eq!(place_injections(&mut list, &turns, 200)?.changed, 0);
    assert_eq!(list.map(|i| i.frame_offset), [Some(34), Some(100), Some(100)]);
    let error = place_injections(&mut [injection(4)], &turns, 156).expect_err("frame 156 of 156");
    assert_eq!(error, StreamsError::OffsetBeyondAudio { index: 0, offset: 156, frames: 156 });
    Ok(())
}

#[test]
fn delays_equal_the_published_ones() -> TestResult {
    let bytes = std::fs::read(golden("personaplex/units/delays.safetensors"))?;
    let file = safetensors::SafeTensors::deserialize(&bytes)?;
    let read = |name: &str| -> Result<Vec<i32>, Box<dyn std::error::Error>> {
        let view = file.tensor(name)?;
        Ok(view.data().chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    };
    let delay: [usize; 6] = std::array::from_fn(|k| [0, 0, 1, 1, 0, 2][k]);
    assert_eq!(read("delays")?, [0, 0, 1, 1, 0, 2]);
    let (x, delayed, mask) = (read("x")?, read("delayed")?, file.tensor("mask")?.data().to_vec());
    for batch in 0..2 {
        let column = |data: &[i32], t: usize| std::array::from_fn(|k| data[(batch * 6 + k) * 7 + t]);
        let frames: Vec<[i32; 6]> = (0..7).map(|t| column(&x, t)).collect();
        let rows = delays::apply(&frames, &delay, &[99; 6]);
        assert_eq!(rows, (0..7).map(|t| column(&delayed, t)).collect::<Vec<_>>());
        let (back, known) = delays::undo(&rows, &delay);
        for (t, (frame, known)) in back.iter().zip(&known).enumerate() {
            for k in 0..6 {
                assert_eq!(known[k], mask[(batch * 6 + k) * 7 + t] == 1);
                assert_eq!(frame[k], if known[k] { frames[t][k] } else { -1 });
            }
        }
        let full = delays::apply_full(&frames, &delay, &[99; 6]);
        assert_eq!(delays::undo(&full, &delay).0[..7], frames[..], "nothing is lost in the full form");
    }
    Ok(())
}
