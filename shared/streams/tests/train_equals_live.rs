//! One injection seen by the trainer and by a live session is the same, frame by frame and row by row.

mod common;

use common::{TestResult, tokenizer};
use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::injection::Injection;
use streams::inject_queue::{Decision, InjectItem, InjectKind, InjectQueue, QueueLimits, When};
use streams::layout::{AGENT, USER, user_codes};
use streams::splice::context_frame;
use streams::{CHANNELS, Codes, DialogueInput, Frame, PromptCodes, ViewConfig, build_dialogue, delays};

fn codes(side: i32, frames: i32) -> Vec<Codes> {
    (0..frames)
        .map(|t| std::array::from_fn(|k| (t * 7 + side * 100 + i32::try_from(k).unwrap_or(0)) % 2048))
        .collect()
}

fn word(text: &str, start_ms: u64, end_ms: u64, speaker: Speaker) -> AlignedWord {
    AlignedWord { word: text.into(), start_ms, end_ms, speaker, estimated: false }
}

/// What a session does: the queue decides, everything else is sampled; the samples are those of the training data.
fn live_frames(train: &[Frame], item: InjectItem, offered_at: usize) -> (Vec<Frame>, InjectQueue) {
    let constants = PromptCodes::default();
    let mut queue = InjectQueue::new(QueueLimits::default());
    queue.begin_conversation();
    let mut item = Some(item);
    let mut out = Vec::new();
    for (f, sampled) in train.iter().enumerate() {
        if f == offered_at {
            queue.offer(item.take().expect("offered once")).expect("an empty queue takes it");
        }
        let frame = match queue.decide() {
            Decision::Free => *sampled,
            Decision::Forced { token } => context_frame(token, &user_codes(sampled), &constants),
        };
        queue.observe(frame[0]);
        out.push(frame);
    }
    (out, queue)
}

/// Writes every value into the row its delay says, as the step-by-step path does.
fn live_rows(frames: &[Frame]) -> Vec<Frame> {
    let mut rows = vec![delays::INITIAL; frames.len() + 1];
    for (f, frame) in frames.iter().enumerate() {
        for k in 0..CHANNELS {
            rows[f + delays::PERSONAPLEX[k]][k] = frame[k];
        }
    }
    rows
}

#[test]
fn training_and_live_views_of_one_injection_are_equal() -> TestResult {
    let tokenizer = tokenizer()?;
    // The context is laid over the listening window in one case and stretches it in the other.
    for user_end_ms in [5_000, 2_400] {
        let words = [
            word("hello", 160, 900, Speaker::Agent),
            word("okay", 1_300, user_end_ms, Speaker::User),
            word("renewal", user_end_ms + 240, user_end_ms + 900, Speaker::Agent),
        ];
        let injections = [Injection { after_turn: 1, text: "quote it".into(), frame_offset: Some(16) }];
        let (agent, user) = (codes(1, 90), codes(2, 90));
        let input =
            DialogueInput { words: &words, injections: &injections, agent_codes: &agent, user_codes: &user };
        let view = build_dialogue(&input, &tokenizer, &ViewConfig::default())?;
        let record = &view.records[0];
        assert_eq!(record.inserted > 0, user_end_ms == 2_400);

        let item = InjectItem {
            id: "a".into(),
            kind: InjectKind::Context,
            tokens: tokenizer.context_tokens("quote it")?,
            when: When::Immediate,
            deadline_frames: None,
            ttl_frames: None,
            supersedes: None,
        };
        let (live, queue) = live_frames(&view.frames, item, record.start);
        assert_eq!(live, view.frames);
        let hidden: Vec<bool> = (0..view.frames.len() as u64).map(|f| queue.is_hidden(f)).collect();
        assert_eq!(hidden, view.context_mask);

        let rows = live_rows(&live);
        assert_eq!(
            rows[..view.frames.len()],
            delays::apply(&view.frames, &delays::PERSONAPLEX, &delays::INITIAL)
        );
    }
    Ok(())
}

#[test]
fn forced_silence_reaches_the_delayed_codebooks_one_row_later() {
    let constants = PromptCodes::default();
    let sampled: Vec<Frame> = (0..8).map(|t| std::array::from_fn(|_| 100 + t)).collect();
    let item = InjectItem {
        id: "a".into(),
        kind: InjectKind::Context,
        tokens: vec![50, 51, 52],
        when: When::Immediate,
        deadline_frames: None,
        ttl_frames: None,
        supersedes: None,
    };
    let (frames, _) = live_frames(&sampled, item, 3);
    let rows = live_rows(&frames);
    let silence = constants.silence;
    assert_eq!((rows[3][0], rows[3][1]), (50, silence[0]));
    assert_eq!(rows[3][2..9], [102; 7], "acoustics of the last spoken frame stay");
    assert_eq!(rows[4][AGENT], silence);
    assert_eq!((rows[6][0], rows[6][1]), (106, 106), "first free frame");
    assert_eq!(rows[6][2..9], silence[1..]);
    assert!(rows[3..6].iter().zip(103..).all(|(r, v)| r[USER.start] == v), "the user is untouched");
}
