//! Scripts: no line lost, turns keep their numbers.

use domain::dialogue::{Speaker, Turn};
use proptest::prelude::*;
use spoken::script::{clean_turn, count_words, turns_from_script};
use spoken::{ScriptLine, SpokenError, format_script, parse_script, script_from_turns};

fn line(speaker: u32, text: &str) -> ScriptLine {
    ScriptLine { speaker, text: text.into() }
}

#[test]
fn blank_lines_continuations_and_repeated_speakers_lose_nothing() {
    let script = "\u{feff}Speaker 1: Hello,\r\n\r\nthis goes on\r\nspeaker 2 : Yes.\nSPEAKER 2: And “more”…\n\n  Speaker 1:\nat last: done\n";
    let lines = parse_script(script).expect("a legal script");
    let expected = [
        line(1, "Hello, this goes on"),
        line(2, "Yes."),
        line(2, "And \"more\"..."),
        line(1, "at last: done"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(count_words(&lines), 10);
}

#[test]
fn numbering_from_zero_moves_up_by_one() {
    let lines = parse_script("Speaker 0: a\nSpeaker 1: b\nSpeaker 2: c\n").expect("legal");
    assert_eq!(lines.iter().map(|l| l.speaker).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(turns_from_script(&lines), Err(SpokenError::UnknownSpeaker { turn: 2, speaker: 3 }));
    let turns = turns_from_script(&lines[..2]).expect("two voices");
    assert_eq!((turns[1].index, turns[1].speaker), (1, Speaker::User));
}

#[test]
fn what_cannot_be_a_turn_is_named_with_its_line() {
    assert_eq!(parse_script("  \n\n"), Err(SpokenError::EmptyScript));
    assert_eq!(parse_script("\nHello\n"), Err(SpokenError::NoSpeaker { line: 2, text: "Hello".into() }));
    assert_eq!(parse_script("Speaker 1: a\nSpeaker 2:\n"), Err(SpokenError::EmptyTurn { turn: 1 }));
    let huge = parse_script("Speaker 99999999999: a");
    assert_eq!(huge, Err(SpokenError::BadSpeaker { line: 1, number: "99999999999".into() }));
    assert_eq!(format_script(&[line(1, " [sighs] ")]), Err(SpokenError::EmptyTurn { turn: 0 }));
}

#[test]
fn stage_directions_go_and_numbers_in_brackets_stay() {
    assert_eq!(
        clean_turn("Well [laughs] *sighs* call (555) 123 (pauses) — now"),
        "Well call (555) 123 - now"
    );
    assert_eq!(clean_turn("5 * 3 is (roughly) it [open"), "5 * 3 is (roughly) it [open");
}

proptest! {
    #[test]
    fn a_dialogue_goes_round_through_its_script(
        texts in prop::collection::vec("[a-zA-Z0-9$%',.!? \n“—]{0,40}[a-z]", 1..20),
    ) {
        let turns: Vec<Turn> = texts
            .iter()
            .enumerate()
            .map(|(i, text)| Turn {
                index: u32::try_from(i).unwrap_or(0),
                speaker: if i % 3 == 0 { Speaker::Agent } else { Speaker::User },
                text: text.clone(),
            })
            .collect();
        let script = script_from_turns(&turns).expect("every turn has text");
        prop_assert_eq!(script.lines().count(), turns.len());
        let back = turns_from_script(&parse_script(&script).expect("our own script")).expect("two voices");
        prop_assert_eq!(back.len(), turns.len());
        for (a, b) in back.iter().zip(&turns) {
            prop_assert_eq!((a.index, a.speaker), (b.index, b.speaker));
            prop_assert_eq!(&a.text, &clean_turn(&b.text));
        }
        prop_assert_eq!(format_script(&parse_script(&script).expect("our own script")), Ok(script));
    }
}
