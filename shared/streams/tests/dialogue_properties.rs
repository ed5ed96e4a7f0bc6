//! What holds for every dialogue: no context lost, no user frame lost or repeated, silence on context frames.

mod common;

use common::dialogues::{Dialogue, dialogue, numbered};
use common::{TestResult, tokenizer};
use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::injection::Injection;
use proptest::prelude::*;
use streams::layout::{agent_codes, user_codes};
use streams::tokens::is_padding;
use streams::{
    CarryContext, Codes, DialogueInput, PromptCodes, PromptInput, SplicedDialogue, StreamsError, ViewConfig,
    WindowConfig, WindowSet, build_dialogue,
};

fn check_splice(d: &Dialogue, view: &SplicedDialogue, codes: &PromptCodes) -> Result<(), TestCaseError> {
    let user: Vec<Codes> = view.frames.iter().map(user_codes).filter(|c| *c != codes.silence).collect();
    prop_assert_eq!(&user, &d.user, "user frames keep their order, none lost or repeated");
    for (t, frame) in view.frames.iter().enumerate() {
        if view.context_mask[t] {
            prop_assert_eq!(agent_codes(frame), codes.silence);
        }
    }
    let agent: Vec<Codes> = view.frames.iter().map(agent_codes).filter(|c| *c != codes.silence).collect();
    prop_assert!(agent.windows(2).all(|w| w[0][0] + 2048 * w[0][1] < w[1][0] + 2048 * w[1][1]));
    prop_assert_eq!(view.context_mask.iter().filter(|&&c| c).count(), view.stats.context_tokens);
    prop_assert_eq!(view.frames.len(), d.agent.len() + view.stats.inserted_frames);
    Ok(())
}

fn spoken(frames: impl Iterator<Item = i32>) -> Vec<i32> {
    frames.filter(|&t| !is_padding(t)).collect()
}

fn check_windows(
    view: &SplicedDialogue,
    set: &WindowSet,
    config: &WindowConfig,
) -> Result<(), TestCaseError> {
    let mut at = 0;
    for window in &set.windows {
        prop_assert_eq!(window.start, at, "windows follow each other without a gap");
        at = window.end;
        prop_assert!(window.frames.len() <= config.duration_frames);
        prop_assert_eq!(window.frames.len(), window.prompt_len + window.end - window.start);
        prop_assert_eq!(&window.frames[window.prompt_len..], &view.frames[window.start..window.end]);
        prop_assert!(window.context_mask[..window.prompt_len].iter().all(|&c| !c));
    }
    prop_assert_eq!(at + set.dropped_tail_frames, view.frames.len());
    for record in &view.records {
        let whole = set.windows.iter().filter(|w| w.start <= record.start && record.end <= w.end).count();
        prop_assert_eq!(whole, 1, "context at {}..{} lies in one window", record.start, record.end);
    }
    Ok(())
}

/// Prompts are whole and lead every window; masks are those of the specification.
fn check_samples(
    view: &SplicedDialogue,
    set: &WindowSet,
    prompt: &PromptInput<'_>,
    tokenizer: &streams::Tokenizer,
    config: &WindowConfig,
) -> Result<(), TestCaseError> {
    let codes = PromptCodes::default();
    for window in &set.windows {
        let (prefix, rest) = window.frames.split_at(window.prompt_len);
        let text = prefix_text(prefix, prompt);
        let bare = tokenizer.system_tokens(prompt.text).expect("a legal prompt");
        let carries = view.records.iter().any(|r| r.start < window.start)
            && config.carry_context == CarryContext::Prompt;
        prop_assert!(carries || text == bare, "the prompt is whole and nothing else");
        let tag = tokenizer.encode("<system>").expect("a legal text");
        prop_assert!(text.starts_with(&tag) && text.ends_with(&tag[1..]), "both tags are there");
        prop_assert!(prefix.iter().all(|f| user_codes(f) == codes.sine));
        let mask = streams::masks::loss_mask(&window.frames, window.prompt_len, &window.context_mask);
        prop_assert!(
            mask.audio[..window.prompt_len].iter().chain(&mask.text[..window.prompt_len]).all(|m| !m)
        );
        for (t, frame) in rest.iter().enumerate() {
            let at = window.prompt_len + t;
            prop_assert_eq!(mask.text[at], !window.context_mask[at]);
            prop_assert!(mask.audio[at] && frame.iter().all(|&v| v >= 0));
        }
    }
    Ok(())
}

fn prefix_text(prefix: &[streams::Frame], prompt: &PromptInput<'_>) -> Vec<i32> {
    let silence = prompt.silence_frames;
    prefix[prompt.voice.len() + silence..prefix.len() - silence].iter().map(|f| f[0]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn every_context_token_lies_in_exactly_one_window(
        d in dialogue(),
        duration in 240usize..900,
        carry in any::<bool>(),
    ) {
        let tokenizer = tokenizer().expect("tiny tokenizer");
        let config = ViewConfig::default();
        let view = build_dialogue(&d.input(), &tokenizer, &config).expect("a legal dialogue");
        check_splice(&d, &view, &config.codes)?;

        let plain = build_dialogue(&DialogueInput { injections: &[], ..d.input() }, &tokenizer, &config)
            .expect("a legal dialogue");
        let without_context =
            view.frames.iter().zip(&view.context_mask).filter(|(_, c)| !**c).map(|(f, _)| f[0]);
        prop_assert_eq!(spoken(without_context), spoken(plain.frames.iter().map(|f| f[0])), "words are unchanged");

        let carry_context = if carry { CarryContext::Prompt } else { CarryContext::None };
        let windows = WindowConfig { carry_context, ..WindowConfig::new(duration) };
        let prompt = PromptInput::new("you are june", &d.agent[..d.agent.len().min(20)]);
        let set = view.windows(&prompt, &tokenizer, &windows, &config.codes).expect("room enough");
        check_windows(&view, &set, &windows)?;
        check_samples(&view, &set, &prompt, &tokenizer, &windows)?;
    }
}

fn one_turn(frames: usize) -> Dialogue {
    let words = vec![AlignedWord {
        word: "hello".into(),
        start_ms: 80,
        end_ms: 400,
        speaker: Speaker::Agent,
        estimated: false,
    }];
    Dialogue { words, injections: Vec::new(), agent: numbered(1, frames), user: numbered(2, frames) }
}

#[test]
fn later_windows_carry_earlier_context_in_their_prompt() -> TestResult {
    let tokenizer = tokenizer()?;
    let mut d = one_turn(400);
    d.injections = vec![Injection { after_turn: 0, text: "quote it".into(), frame_offset: Some(10) }];
    let config = ViewConfig::default();
    let view = build_dialogue(&d.input(), &tokenizer, &config)?;
    let prompt = PromptInput::new("you are june", &[]);
    let set = view.windows(&prompt, &tokenizer, &WindowConfig::new(250), &config.codes)?;
    let text = |i: usize| -> Vec<i32> {
        set.windows[i].frames[6..set.windows[i].prompt_len - 6].iter().map(|f| f[0]).collect()
    };
    assert_eq!(text(0), tokenizer.encode("<system> you are june <system>")?);
    assert_eq!(text(1), tokenizer.encode("<system> you are june quote it <system>")?);
    Ok(())
}

#[test]
fn padding_is_zero_in_all_channels_and_carries_no_loss() -> TestResult {
    let tokenizer = tokenizer()?;
    let d = one_turn(40);
    let config = ViewConfig::default();
    let view = build_dialogue(&d.input(), &tokenizer, &config)?;
    let prompt = PromptInput::new("", &[]);
    let mut set = view.windows(&prompt, &tokenizer, &WindowConfig::new(250), &config.codes)?;
    let window = &mut set.windows[0];
    assert_eq!((window.prompt_len, window.valid_frames), (0, 40));
    window.pad_to(50);
    assert!(window.frames[40..].iter().all(|f| *f == streams::EMPTY_FRAME));
    let mask = streams::masks::loss_mask(&window.frames, window.prompt_len, &window.context_mask);
    assert!(mask.text[..40].iter().all(|&on| on) && mask.audio[40..].iter().all(|&on| !on));
    Ok(())
}

#[test]
fn a_prompt_that_leaves_no_room_is_refused_with_its_numbers() -> TestResult {
    let tokenizer = tokenizer()?;
    let d = one_turn(300);
    let config = ViewConfig::default();
    let view = build_dialogue(&d.input(), &tokenizer, &config)?;
    let voice = numbered(1, 80);
    let prompt = PromptInput::new("", &voice);
    let error = view
        .windows(&prompt, &tokenizer, &WindowConfig::new(200), &config.codes)
        .expect_err("92 frames of prompt leave 108");
    let expected =
        StreamsError::PromptTooLong { prompt_frames: 92, duration_frames: 200, left: 108, needed: 125 };
    assert_eq!(error, expected);
    Ok(())
}

#[test]
fn illegal_dialogues_are_refused() -> TestResult {
    let tokenizer = tokenizer()?;
    let config = ViewConfig::default();
    let good = one_turn(50);
    let build = |d: &Dialogue| build_dialogue(&d.input(), &tokenizer, &config).err();
    assert_eq!(build(&good), None);

    let mut short = good.clone();
    short.user.pop();
    assert_eq!(build(&short), Some(StreamsError::LengthMismatch { agent: 50, user: 49 }));
    let mut blank = good.clone();
    blank.user[7] = [-1; 8];
    assert_eq!(build(&blank), Some(StreamsError::BadCode { side: "user", code: -1, frame: 7 }));
    let inject = |text: &str, frame_offset| {
        let mut d = good.clone();
        d.injections = vec![Injection { after_turn: 0, text: text.into(), frame_offset }];
        build(&d)
    };
    assert_eq!(inject("quote it", None), Some(StreamsError::NotPlaced { index: 0 }));
    let late = StreamsError::OffsetBeyondAudio { index: 0, offset: 50, frames: 50 };
    assert_eq!(inject("quote it", Some(50)), Some(late));
    let long = inject(&"renewal savings tomorrow ".repeat(20), Some(1));
    assert!(matches!(long, Some(StreamsError::InjectionTooLong { index: 0, limit: 50, .. })), "{long:?}");
    Ok(())
}
