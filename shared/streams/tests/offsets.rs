//! Where injections go in unusual dialogues (finetune.md 7), and that the splice keeps what the offsets say.

mod common;

use common::dialogues::numbered;
use common::{TestResult, tokenizer};
use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dialogue::Speaker::{self, Agent, User};
use domain::injection::{Injection, Placement};
use streams::offsets::{OffsetReport, place_after_turn, place_injections};
use streams::{DialogueInput, StreamsError, ViewConfig, build_dialogue};

fn turns(list: &[(Speaker, u64, u64)]) -> Vec<AlignedTurn> {
    let turn = |(index, &(speaker, start_ms, end_ms)): (u32, &(Speaker, u64, u64))| AlignedTurn {
        index,
        speaker,
        start_ms,
        end_ms,
        text: String::new(),
    };
    (0..).zip(list).map(turn).collect()
}

fn injection(after_turn: u32, text: &str) -> Injection {
    Injection { after_turn, text: text.into(), frame_offset: None }
}

#[test]
fn the_very_start_turns_without_length_and_overlaps_have_their_frames() -> TestResult {
    let turns = turns(&[
        // The user opens the call.
        (User, 0, 900),
        // No word of it was found: it lies between its neighbours.
        (Agent, 900, 900),
        (User, 900, 900),
        // The agent still speaks when the user begins.
        (Agent, 1_000, 2_900),
        (User, 2_500, 2_800),
    ]);
    let at = |turn| place_after_turn(turn, &turns);
    assert_eq!(at(0)?, (0, Placement::Proactive), "an injection at the very start is legal");
    assert_eq!(at(1)?, (12, Placement::Reactive), "900 ms are frame 11.25: after it, the next");
    assert_eq!(at(2)?, (11, Placement::Proactive), "and the one that it begins in");
    assert_eq!(at(3)?, (37, Placement::Reactive), "the anchor stays where the agent ends");
    assert_eq!(at(4)?, (31, Placement::Proactive));
    assert_eq!(at(5), Err(StreamsError::AfterTurnOutOfRange { after_turn: 5, turns: 5 }));
    Ok(())
}

#[test]
fn a_fault_in_one_injection_is_told_with_its_number_and_turns_out_of_order_are_refused() {
    let mut odd = turns(&[(Agent, 0, 500), (User, 600, 2_000)]);
    let list = &mut [injection(1, "quote it"), injection(0, "say yes"), injection(1, "say yes")];
    assert_eq!(
        place_injections(list, &odd, 7),
        Err(StreamsError::OffsetBeyondAudio { index: 0, offset: 7, frames: 7 })
    );
    assert_eq!(
        place_injections(list, &odd, 8),
        Ok(OffsetReport { proactive: 2, reactive: 1, changed: 3 }),
        "the last frame is inside"
    );
    let placed = list.clone();
    assert_eq!(place_injections(list, &odd, 8).map(|r| r.changed), Ok(0));
    assert_eq!(*list, placed, "placing again changes nothing");
    odd[1].index = 2;
    assert_eq!(place_after_turn(1, &odd), Err(StreamsError::TurnIndexMismatch { position: 1, index: 2 }));
}

#[test]
fn equal_offsets_keep_the_order_of_the_list_and_an_overlapped_agent_is_waited_for() -> TestResult {
    let turns = turns(&[(Agent, 0, 800), (User, 640, 1_200), (Agent, 1_600, 2_400)]);
    let word = |speaker, start_ms, end_ms| AlignedWord {
        word: "hello".into(),
        start_ms,
        end_ms,
        speaker,
        estimated: false,
    };
    let words = [word(Agent, 0, 800), word(User, 640, 1_200), word(Agent, 1_600, 2_400)];
    let mut injections = [injection(1, "quote it"), injection(1, "say yes"), injection(1, "renewal savings")];
    place_injections(&mut injections, &turns, 40)?;
    assert_eq!(injections.each_ref().map(|i| i.frame_offset), [Some(8); 3]);
    let (agent, user) = (numbered(1, 40), numbered(2, 40));
    let input =
        DialogueInput { words: &words, injections: &injections, agent_codes: &agent, user_codes: &user };
    let view = build_dialogue(&input, &tokenizer()?, &ViewConfig::default())?;
    let order: Vec<usize> = view.records.iter().map(|r| r.injection).collect();
    assert_eq!(order, [0, 1, 2]);
    assert_eq!((view.records[0].start, view.records[0].deferred), (10, 2), "the agent ends at 800 ms");
    assert!(view.records.windows(2).all(|pair| pair[0].end <= pair[1].start));
    Ok(())
}
