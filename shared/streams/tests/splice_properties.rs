//! What holds for every dialogue in both splice modes and with unusual settings: each context token stands in exactly
//! one window, user frames keep their order, the agent is silent on context frames, and masks are as specified.

mod common;

use std::collections::HashSet;

use common::dialogues::{Dialogue, dialogue};
use common::tokenizer;
use domain::dialogue::Speaker;
use domain::frame::{frame_ceil, frame_floor};
use proptest::prelude::*;
use streams::layout::{TEXT, agent_codes, user_codes};
use streams::splice::SpliceMode;
use streams::text_stream::{Overflow, TextStreamConfig};
use streams::windows::WindowRules;
use streams::{
    CarryContext, Codes, EMPTY_FRAME, PromptInput, SplicedDialogue, Tokenizer, ViewConfig, WindowConfig,
    WindowSet, build_dialogue, masks,
};

type Outcome = Result<(), TestCaseError>;

/// Settings from one end of their ranges to the other.
#[derive(Debug, Clone)]
struct Settings {
    view: ViewConfig,
    rules: WindowRules,
    carry: CarryContext,
    /// Frames above the smallest that a window can have.
    spare: usize,
}

fn settings() -> impl Strategy<Value = Settings> {
    let text = (any::<bool>(), 0usize..3, -1_200i64..1_200).prop_map(|(delayed, overflow, ms)| {
        let overflow = [Overflow::Drop, Overflow::Shift, Overflow::ShiftBounded][overflow];
        TextStreamConfig {
            overflow,
            audio_delay_ms: if delayed { ms } else { 0 },
            ..TextStreamConfig::default()
        }
    });
    let rules = (0usize..=250, 0usize..=250, 1usize..=120);
    (text, any::<bool>(), 0usize..=10, rules, any::<bool>(), 0usize..300).prop_map(
        |(text, overlay, guard, (lookback, min_post, min_window), carry, spare)| Settings {
            view: ViewConfig {
                text,
                splice_mode: if overlay {
                    SpliceMode::OverlayThenStretch
                } else {
                    SpliceMode::InsertCopyUser
                },
                guard,
                ..ViewConfig::default()
            },
            rules: WindowRules { lookback, min_post, min_window, ..WindowRules::default() },
            carry: if carry { CarryContext::Prompt } else { CarryContext::None },
            spare,
        },
    )
}

/// Tokens of every context, one list a record, in order of time.
fn contexts(d: &Dialogue, view: &SplicedDialogue, tokenizer: &Tokenizer) -> Vec<Vec<i32>> {
    let text = |i: usize| tokenizer.context_tokens(&d.injections[i].text).expect("a legal text");
    view.records.iter().map(|r| text(r.injection)).collect()
}

/// Contexts are all there, whole, in order of their anchors, and nothing else is marked as context.
fn check_contexts(d: &Dialogue, view: &SplicedDialogue, tokens: &[Vec<i32>], silence: &Codes) -> Outcome {
    let mut order: Vec<usize> = (0..d.injections.len()).collect();
    order.sort_by_key(|&i| d.injections[i].frame_offset);
    let placed: Vec<usize> = view.records.iter().map(|r| r.injection).collect();
    prop_assert_eq!(placed, order, "every injection once; equal anchors keep the order of the list");
    let mut marked = vec![false; view.frames.len()];
    for (record, tokens) in view.records.iter().zip(tokens) {
        let text: Vec<i32> = view.frames[record.start..record.end].iter().map(|f| f[TEXT]).collect();
        prop_assert_eq!(&text, tokens, "the context stands whole at {}..{}", record.start, record.end);
        prop_assert!(!marked[record.start..record.end].contains(&true), "contexts do not overlap");
        marked[record.start..record.end].fill(true);
    }
    prop_assert_eq!(&view.context_mask, &marked);
    for (frame, _) in view.frames.iter().zip(&marked).filter(|(_, context)| **context) {
        prop_assert_eq!(&agent_codes(frame), silence, "the agent is silent on context frames");
    }
    Ok(())
}

/// No user frame is lost, repeated or moved against another; nothing that the agent says is lost.
fn check_stretched(d: &Dialogue, view: &SplicedDialogue, silence: &Codes) -> Outcome {
    let kept = |side: fn(&streams::Frame) -> Codes| -> Vec<Codes> {
        view.frames.iter().map(side).filter(|c| c != silence).collect()
    };
    prop_assert_eq!(&kept(user_codes), &d.user);
    let agent = kept(agent_codes);
    let said: HashSet<&Codes> = agent.iter().collect();
    for word in d.words.iter().filter(|w| w.speaker == Speaker::Agent) {
        let frame = |f: u64| usize::try_from(f).unwrap_or(usize::MAX).min(d.agent.len());
        for spoken in &d.agent[frame(frame_floor(word.start_ms))..frame(frame_ceil(word.end_ms))] {
            prop_assert!(said.contains(spoken), "the agent's frame {:?} is lost", spoken);
        }
    }
    prop_assert!(d.agent.iter().filter(|c| said.contains(c)).eq(&agent), "in order, none twice");
    Ok(())
}

/// The compatible splice: all of both sides between the contexts, and under each the user frames that follow it.
fn check_copied(d: &Dialogue, view: &SplicedDialogue, silence: &Codes) -> Outcome {
    let between = |side: fn(&streams::Frame) -> Codes| -> Vec<Codes> {
        view.frames.iter().zip(&view.context_mask).filter(|(_, c)| !**c).map(|(f, _)| side(f)).collect()
    };
    prop_assert_eq!(&between(user_codes), &d.user);
    prop_assert_eq!(&between(agent_codes), &d.agent);
    for record in &view.records {
        for (n, frame) in view.frames[record.start..record.end].iter().enumerate() {
            let follows = d.user.get(record.anchor + n).unwrap_or(silence);
            prop_assert_eq!(&user_codes(frame), follows, "frame {} of {:?}", n, record);
        }
    }
    Ok(())
}

/// Windows hold every frame once, and with them every context token; a context is in one piece.
fn check_windows(
    view: &SplicedDialogue,
    set: &WindowSet,
    tokens: &[Vec<i32>],
    rules: &WindowRules,
) -> Outcome {
    let mut at = 0;
    let mut seen = Vec::new();
    for window in &set.windows {
        prop_assert_eq!(window.start, at);
        at = window.end;
        prop_assert!(at == view.frames.len() || at - window.start >= rules.min_window);
        prop_assert_eq!(&window.frames[window.prompt_len..], &view.frames[window.start..window.end]);
        let marked = window.frames.iter().zip(&window.context_mask).filter(|(_, c)| **c);
        seen.extend(marked.map(|(f, _)| f[TEXT]));
    }
    prop_assert_eq!(at + set.dropped_tail_frames, view.frames.len());
    prop_assert_eq!(seen, tokens.concat(), "every context token stands in exactly one window");
    for record in &view.records {
        let homes = set.windows.iter().filter(|w| w.start <= record.start && record.end <= w.end).count();
        prop_assert_eq!(homes, 1, "context {}..{} is in one piece", record.start, record.end);
    }
    Ok(())
}

/// No loss on prompt and padding, audio loss on all that was heard, text loss where there is text and no context.
fn check_masks(set: &WindowSet) -> Outcome {
    for window in &set.windows {
        let mut window = window.clone();
        window.pad_to(window.valid_frames + 7);
        prop_assert!(window.frames[window.valid_frames..].iter().all(|f| *f == EMPTY_FRAME));
        let mask = masks::loss_mask(&window.frames, window.prompt_len, &window.context_mask);
        for (t, frame) in window.frames.iter().enumerate() {
            let heard = (window.prompt_len..window.valid_frames).contains(&t);
            prop_assert_eq!(mask.audio[t], heard, "audio loss at {}", t);
            prop_assert_eq!(
                mask.text[t],
                heard && !window.context_mask[t] && frame[TEXT] >= 0,
                "text loss at {}",
                t
            );
            prop_assert!(!heard || frame[TEXT + 1..].iter().all(|&code| code >= 0), "both sides are heard");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn context_is_whole_and_the_user_is_kept_in_both_modes_and_all_settings(d in dialogue(), s in settings()) {
        let tokenizer = tokenizer().expect("tiny tokenizer");
        let view = build_dialogue(&d.input(), &tokenizer, &s.view).expect("a legal dialogue");
        let silence = s.view.codes.silence;
        let tokens = contexts(&d, &view, &tokenizer);
        check_contexts(&d, &view, &tokens, &silence)?;
        match s.view.splice_mode {
            SpliceMode::OverlayThenStretch => check_stretched(&d, &view, &silence)?,
            SpliceMode::InsertCopyUser => check_copied(&d, &view, &silence)?,
        }
        let prompt = PromptInput::new("you are june", &d.agent[..d.agent.len().min(9)]);
        let bare = prompt.voice.len() + 2 * prompt.silence_frames
            + tokenizer.system_tokens(prompt.text).expect("a legal prompt").len();
        let windows = WindowConfig {
            rules: s.rules,
            carry_context: s.carry,
            ..WindowConfig::new(bare + s.rules.smallest_capacity() + s.spare)
        };
        let set = view.windows(&prompt, &tokenizer, &windows, &s.view.codes).expect("room enough");
        prop_assert!(set.windows.iter().all(|w| w.frames.len() <= windows.duration_frames));
        check_windows(&view, &set, &tokens, &s.rules)?;
        check_masks(&set)?;
    }
}
