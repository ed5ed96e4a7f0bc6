#![expect(clippy::expect_used, reason = "tests")]

use domain::pack::built_in;

use super::*;
use crate::grammar::generate;
use crate::sampler::Design;

fn records(rows: u32) -> (DomainPack, Vec<DialogueRecord>) {
    let (_, pack) = built_in().swap_remove(0);
    let design = Design::new(&pack, rows, 3).expect("designs");
    let records = (0..rows).map(|row| generate(&pack, &design, row, 3).expect("generates")).collect();
    (pack, records)
}

#[test]
fn a_dialogue_told_again_with_a_few_other_words_is_v10_and_another_one_is_not() {
    let (_, records) = records(60);
    let mut accepted = Likeness::default();
    for record in &records {
        assert_eq!(accepted.fault(record), None, "{}", record.id);
        accepted.add(record);
    }
    let mut again = records[7].clone();
    again.id = "another".into();
    again.turns[0].text = "Good evening.".into();
    again.turns.iter_mut().for_each(|t| t.text = t.text.to_uppercase().replace(',', " -"));
    let fault = accepted.fault(&again).expect("is the same again");
    assert!(fault.code == FaultCode::V10 && fault.detail.contains(&records[7].id), "{fault:?}");
    // A second attempt at the same row is not compared with itself.
    assert_eq!(accepted.fault(&records[7]), None);
}

#[test]
fn the_nearest_is_named_and_the_order_of_arrival_does_not_matter() {
    let (_, records) = records(30);
    let mut again = records[4].clone();
    again.id = "another".into();
    let fault = |order: &mut dyn Iterator<Item = &DialogueRecord>| {
        let mut accepted = Likeness::default();
        order.for_each(|r| accepted.add(r));
        accepted.fault(&again)
    };
    let there = fault(&mut records.iter());
    assert!(there.is_some());
    assert_eq!(there, fault(&mut records.iter().rev()));
}

#[test]
fn a_batch_with_one_kind_of_placement_or_one_client_is_warned_of() {
    let (mut pack, mut records) = records(120);
    assert_eq!(warnings(&pack, &records), []);
    for record in records.iter_mut().take(5) {
        let (head, tail) = record.text_prompt.split_once("CLIENT: ").expect("has a client");
        let (_, rest) = tail.split_once(' ').and_then(|(_, more)| more.split_once(' ')).expect("has a name");
        record.text_prompt = format!("{head}CLIENT: Ada Unique {rest}");
    }
    pack.injections.proactive_share = 0.2;
    let codes: Vec<&str> = warnings(&pack, &records).iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, ["V06", "V11"]);
}

#[test]
fn a_judge_that_reads_another_outcome_is_v09() {
    let (_, records) = records(2);
    let wanted = records[0].seed[OUTCOME_AXIS].clone();
    assert_eq!(outcome_fault(&records[0], &wanted), None);
    assert_eq!(outcome_fault(&records[0], "soft_something").map(|f| f.code), Some(FaultCode::V09));
}

#[test]
fn signatures_of_records_that_are_alike_have_many_hashes_in_common_and_others_few() {
    let (_, records) = records(40);
    let common = |a: &DialogueRecord, b: &DialogueRecord| {
        let own = signature(a);
        signature(b).iter().filter(|hash| own.contains(hash)).count()
    };
    for (i, record) in records.iter().enumerate() {
        let mut again = record.clone();
        again
            .turns
            .iter_mut()
            .step_by(5)
            .for_each(|t| t.text = format!("Something else at turn {}", t.index));
        let mut accepted = Likeness::default();
        again.id = "another".into();
        accepted.add(record);
        assert!(accepted.fault(&again).is_none() || common(record, &again) >= COMMON_HASHES);
        assert!(
            records.iter().skip(i + 1).filter(|other| common(record, other) >= COMMON_HASHES).count() < 6
        );
    }
}

#[test]
fn a_thousand_dialogues_of_one_design_keep_every_rule_none_is_told_twice_and_the_batch_meets_its_targets() {
    for (id, pack) in built_in() {
        let design = Design::new(&pack, 1_000, 11).expect("designs");
        let mut accepted = Likeness::default();
        let mut records = Vec::new();
        for row in 0..1_000 {
            let record = generate(&pack, &design, row, 11).expect("generates");
            assert_eq!(crate::validate::faults(&pack, &record), [], "{id} {row}");
            assert_eq!(accepted.fault(&record), None, "{id} {row}");
            accepted.add(&record);
            records.push(record);
        }
        assert_eq!(warnings(&pack, &records), [], "{id}");
    }
}
