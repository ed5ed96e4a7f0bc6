//! Choices of the view: splice mode, weights and number of windows.

mod common;

use common::{TestResult, tokenizer};
use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;
use domain::injection::Injection;
use streams::layout::{agent_codes, user_codes};
use streams::splice::SpliceMode;
use streams::{
    Codes, DialogueInput, PromptCodes, PromptInput, SplicedDialogue, StreamsError, ViewConfig, WindowConfig,
    build_dialogue,
};

fn codes(side: i32, frames: i32) -> Vec<Codes> {
    (0..frames).map(|t| [t, side, 0, 0, 0, 0, 0, 0]).collect()
}

fn word(start_ms: u64, speaker: Speaker) -> AlignedWord {
    AlignedWord { word: "hello".into(), start_ms, end_ms: start_ms + 400, speaker, estimated: false }
}

fn view(mode: SpliceMode, anchors: &[u32]) -> Result<SplicedDialogue, Box<dyn std::error::Error>> {
    let (agent, user) = (codes(1, 700), codes(2, 700));
    let words = [word(800, Speaker::Agent), word(8_000, Speaker::User), word(24_000, Speaker::Agent)];
    let injections: Vec<Injection> = anchors
        .iter()
        .map(|&f| Injection { after_turn: 0, text: "quote it".into(), frame_offset: Some(f) })
        .collect();
    let input =
        DialogueInput { words: &words, injections: &injections, agent_codes: &agent, user_codes: &user };
    let config = ViewConfig { splice_mode: mode, ..ViewConfig::default() };
    Ok(build_dialogue(&input, &tokenizer()?, &config)?)
}

#[test]
fn the_older_splice_plays_the_users_frames_twice_and_moves_everything_after() -> TestResult {
    let plain = view(SpliceMode::InsertCopyUser, &[])?;
    let old = view(SpliceMode::InsertCopyUser, &[300, 100])?;
    let tokens = tokenizer()?.context_tokens("quote it")?;
    let n = tokens.len();
    assert_eq!(old.frames.len(), 700 + 2 * n);
    assert_eq!((old.stats.inserted_frames, old.stats.deferred_frames), (2 * n, 0));
    let [first, second] = old.records.as_slice() else { return Err("two records".into()) };
    assert_eq!((first.injection, first.anchor, first.start, first.end), (1, 100, 100, 100 + n));
    assert_eq!((second.injection, second.anchor, second.start), (0, 300, 300 + n));
    for record in &old.records {
        for (t, &token) in (record.start..record.end).zip(&tokens) {
            assert_eq!((old.frames[t][0], old.context_mask[t]), (token, true));
            assert_eq!(agent_codes(&old.frames[t]), PromptCodes::default().silence);
            assert_eq!(user_codes(&old.frames[t]), user_codes(&old.frames[t + n]), "the copy");
        }
    }
    let rest: Vec<_> =
        old.frames.iter().zip(&old.context_mask).filter(|(_, c)| !**c).map(|(f, _)| *f).collect();
    assert_eq!(rest, plain.frames, "what was there is there unchanged");
    assert_eq!(old.agent_words, [(10, 15), (300 + 2 * n, 305 + 2 * n)]);

    let new = view(SpliceMode::OverlayThenStretch, &[300, 100])?;
    assert!(new.stats.inserted_frames < n, "the agent has room to listen: {:?}", new.stats);
    let late = view(SpliceMode::InsertCopyUser, &[700]).expect_err("past the end").to_string();
    assert_eq!(late, StreamsError::OffsetBeyondAudio { index: 0, offset: 700, frames: 700 }.to_string());
    Ok(())
}

#[test]
fn the_first_window_weighs_more_and_the_number_of_windows_can_be_bounded() -> TestResult {
    let tokenizer = tokenizer()?;
    let view = view(SpliceMode::OverlayThenStretch, &[])?;
    let cut = |config: &WindowConfig| {
        view.windows(&PromptInput::new("you are june", &[]), &tokenizer, config, &PromptCodes::default())
    };
    let all = cut(&WindowConfig::new(250))?;
    let weights: Vec<f64> = all.windows.iter().map(|w| w.weight).collect();
    assert_eq!((weights[0], all.dropped_windows), (2.0, 0));
    assert!(weights.len() >= 3 && weights[1..].iter().all(|w| *w == 1.0), "{weights:?}");
    let few =
        cut(&WindowConfig { max_windows: Some(2), first_window_weight: 5.0, ..WindowConfig::new(250) })?;
    assert_eq!(few.windows.len(), 2);
    assert_eq!((few.windows[0].weight, few.dropped_windows), (5.0, weights.len() - 2));
    assert_eq!(few.windows[1].frames, all.windows[1].frames);
    Ok(())
}

#[test]
fn much_inserted_time_and_many_lost_tokens_are_told() -> TestResult {
    let quiet = view(SpliceMode::OverlayThenStretch, &[100])?;
    assert_eq!(quiet.stats.warnings(), Vec::<String>::new());
    let mut stats = quiet.stats;
    stats.inserted_frames = 140;
    stats.text.tokens = 100;
    stats.text.tokens_dropped = 3;
    assert_eq!(
        stats.warnings(),
        [
            "3 of 100 text tokens (3.0 %) found no frame",
            "context inserted 140 frames (20.0 % of the dialogue)"
        ]
    );
    Ok(())
}
