#![expect(clippy::expect_used, reason = "tests")]

use domain::pack::built_in;

use super::*;
use crate::grammar::generate;
use crate::sampler::Design;

/// A good record with three injections.
fn good() -> (DomainPack, DialogueRecord) {
    let (_, pack) = built_in().into_iter().find(|(id, _)| id == "pharma_adherence").expect("is built in");
    let design = Design::new(&pack, 20, 1).expect("designs");
    let record = (0..20)
        .map(|row| generate(&pack, &design, row, 1).expect("generates"))
        .find(|record| {
            record.context_injections.len() == 3
                && record
                    .context_injections
                    .iter()
                    .any(|i| placement_of(record, i.after_turn) == Some(Placement::Reactive))
        })
        .expect("half of the rows have three injections");
    assert_eq!(faults(&pack, &record), []);
    (pack, record)
}

fn codes(change: impl FnOnce(&mut DialogueRecord)) -> Vec<&'static str> {
    let (pack, mut record) = good();
    change(&mut record);
    let mut codes: Vec<&str> = faults(&pack, &record).into_iter().map(|f| f.code.as_str()).collect();
    codes.dedup();
    codes
}

#[test]
fn too_few_turns_a_wrong_first_speaker_and_wrong_indices_are_v01() {
    assert_eq!(codes(|r| r.turns.iter_mut().for_each(|t| t.index += 1)).first(), Some(&"V01"));
    assert!(codes(|r| r.turns.truncate(4)).contains(&"V01"));
    assert!(codes(|r| r.turns[0].speaker = Speaker::User).contains(&"V01"));
}

#[test]
fn three_turns_of_one_speaker_are_v02() {
    assert!(codes(|r| r.turns[1].speaker = Speaker::Agent).contains(&"V02"));
}

#[test]
fn texts_that_cannot_be_spoken_are_v03() {
    for text in [
        "",
        " ",
        "!!!!!!!!",
        "\u{2026}",
        "\u{1f600}",
        "[laughs] fine",
        "fine <b>",
        "Agent: fine",
        "*nods* yes",
    ] {
        assert_eq!(codes(|r| r.turns[1].text = text.into()), ["V03"], "{text:?}");
    }
    assert_eq!(codes(|r| r.turns[1].text = "word ".repeat(121)), ["V03"]);
    assert_eq!(codes(|r| r.turns[1].text = "15.09.2021".into()), [""; 0]);
}

#[test]
fn injections_past_the_end_out_of_order_or_too_near_are_v04() {
    let last = |r: &DialogueRecord| u32::try_from(r.turns.len()).expect("is small") - 1;
    assert!(codes(|r| r.context_injections[2].after_turn = last(r)).contains(&"V04"));
    assert!(codes(|r| r.context_injections.reverse()).contains(&"V04"));
    assert!(
        codes(|r| r.context_injections[1].after_turn = r.context_injections[0].after_turn + 1)
            .contains(&"V04")
    );
}

#[test]
fn a_wrong_number_of_injections_long_ones_and_tags_are_v05() {
    assert!(codes(|r| drop(r.seed.insert("injection_count".into(), "6".into()))).contains(&"V05"));
    assert!(codes(|r| r.context_injections[0].text.push_str(&" again".repeat(40))).contains(&"V05"));
    assert!(codes(|r| r.context_injections[0].text.push_str(" <x>")).contains(&"V05"));
}

#[test]
fn a_reactive_injection_without_a_hedge_is_v06() {
    let unhedged = |r: &mut DialogueRecord| {
        for turn in r.turns.iter_mut().filter(|t| t.speaker == Speaker::Agent) {
            turn.text = turn.text.replace(['L', 'O', 'G', 'I'], "").replace("et me", "");
        }
    };
    assert!(codes(unhedged).contains(&"V06"));
}

#[test]
fn a_brief_without_a_section_or_with_too_few_facts_is_v07() {
    assert!(codes(|r| r.text_prompt = r.text_prompt.replace("GOAL", "AIM")).contains(&"V07"));
    assert!(codes(|r| r.text_prompt = r.text_prompt.replace("; ", ", ")).contains(&"V07"));
    assert!(codes(|r| r.text_prompt.push_str(&" more".repeat(400))).contains(&"V07"));
}

#[test]
fn an_amount_from_nowhere_and_one_said_before_its_injection_are_v08() {
    assert_eq!(codes(|r| r.turns[2].text.push_str(" It is $987.65.")), ["V08"]);
    let (pack, mut record) = good();
    record.context_injections[0].text = "Tell the patient the fee is $987.65.".into();
    let at = usize::try_from(record.context_injections[0].after_turn).expect("is small");
    let agent_after = (at + 1..).find(|i| record.turns[*i].speaker == Speaker::Agent).expect("there is one");
    record.turns[agent_after].text = "The fee is $987.65.".into();
    assert_eq!(faults(&pack, &record).iter().filter(|f| f.detail.contains("$987.65")).count(), 0);
    let agent_before =
        (0..=at).rev().find(|i| record.turns[*i].speaker == Speaker::Agent).expect("there is one");
    record.turns[agent_before].text.push_str(" The fee is $987.65.");
    assert_eq!(faults(&pack, &record).iter().filter(|f| f.detail.contains("$987.65")).count(), 1);
}

#[test]
fn a_figure_in_words_is_grounded_by_the_figure_in_the_brief_and_the_other_way_round() {
    let with = |known: &str, said: &str| {
        codes(|r| {
            r.text_prompt = r.text_prompt.replacen("; ", &format!(", {known}; "), 1);
            r.turns[2].text.push_str(&format!(" It is {said}."));
        })
    };
    for (known, said) in [
        ("fee $13,100", "thirteen thousand one hundred dollars"),
        ("fee thirteen thousand one hundred dollars", "$13,100"),
        ("file RX-48213", "R X four eight two one three"),
        ("visit on June 9", "the ninth of June"),
        ("dose 125 micrograms", "one hundred twenty five mcg"),
        ("off 37.5%", "thirty seven point five percent"),
    ] {
        assert_eq!(with(known, said), [""; 0], "{known} / {said}");
    }
    assert_eq!(with("fee $13,100", "thirteen thousand ten dollars"), ["V08"]);
    assert_eq!(with("dose 125 micrograms", "125 milligrams"), ["V08"]);
}

#[test]
fn what_is_unknown_at_the_start_is_no_ground_and_a_name_before_its_injection_is_v08() {
    let unknown = |r: &mut DialogueRecord| {
        r.text_prompt = r.text_prompt.replacen("UNKNOWN: ", "UNKNOWN: the fee of $77.10, ", 1);
        r.turns[2].text.push_str(" The fee is $77.10.");
    };
    assert_eq!(codes(unknown), ["V08"]);
    let early = |r: &mut DialogueRecord| {
        r.context_injections[2].text = "Name the nurse, Olga Bernstein.".into();
        r.turns[2].text.push_str(" Ask for Olga Bernstein.");
    };
    assert_eq!(codes(early), ["V08"]);
    let late = |r: &mut DialogueRecord| {
        r.context_injections[2].text = "Name the nurse, Olga Bernstein.".into();
        let after = r.context_injections[2].after_turn;
        let turn = r.turns.iter_mut().find(|t| t.index > after && t.speaker == Speaker::Agent);
        turn.expect("an injection is used").text = "Ask for Olga Bernstein.".into();
    };
    assert_eq!(codes(late), [""; 0]);
}

#[test]
fn the_user_may_state_anything_and_the_agent_may_repeat_it() {
    let repeated = |r: &mut DialogueRecord| {
        r.turns[1].text.push_str(" I paid $41.20.");
        r.turns[2].text.push_str(" So forty one dollars and twenty cents.");
    };
    assert_eq!(codes(repeated), [""; 0]);
}

#[test]
fn two_injections_may_share_a_turn_and_three_may_not() {
    let share = |count: usize| {
        codes(|r| {
            let first = r.context_injections[0].clone();
            r.context_injections = vec![first; 3];
            for (i, injection) in r.context_injections.iter_mut().enumerate().skip(count) {
                injection.after_turn += 2 * u32::try_from(i).expect("is small");
            }
            // The claims of the others are gone.
            r.turns.iter_mut().skip(2).for_each(|t| t.text = format!("Let me see {}.", "so ".repeat(3)));
        })
    };
    assert!(!share(2).contains(&"V04"), "{:?}", share(2));
    assert!(share(3).contains(&"V04"));
}

#[test]
fn answers_that_were_cut_or_refused_are_v12() {
    let code = |reason| answer_fault(reason).map(|f| f.code.as_str());
    assert_eq!(["max_tokens", "refusal"].map(code), [Some("V12"); 2]);
    assert_eq!(["end_turn", "tool_use", "stop_sequence"].map(code), [None; 3]);
}

#[test]
fn mail_addresses_and_long_numbers_are_v11() {
    assert_eq!(codes(|r| r.turns[1].text = "Write to me@example.com".into()), ["V11"]);
    assert_eq!(codes(|r| r.turns[1].text = "Call 555-010-1234".into()), ["V11"]);
}

#[test]
fn a_missing_disclosure_and_a_forbidden_promise_are_v13() {
    assert_eq!(codes(|r| r.turns[0].text = "Hello. Your name, please?".into()), ["V13"]);
    assert_eq!(codes(|r| r.turns[2].text.push_str(" I guarantee it.")), ["V13"]);
}
