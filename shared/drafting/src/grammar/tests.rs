#![expect(clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;

use domain::pack::built_in;

use super::*;
use crate::validate::{faults, placement_of};

fn records(pack: &DomainPack, rows: u32, seed: u64) -> Vec<DialogueRecord> {
    let design = Design::new(pack, rows, seed).expect("has no constraint in the way");
    (0..rows).map(|row| generate(pack, &design, row, seed).expect("generates")).collect()
}

fn words(record: &DialogueRecord) -> usize {
    record.turns.iter().map(|t| t.text.split_whitespace().count()).sum()
}

#[test]
fn two_hundred_dialogues_of_each_pack_and_seed_keep_every_rule() {
    for (id, pack) in built_in() {
        for seed in [0, 1, 7, 20_261_130] {
            let (mut proactive, mut total) = (0usize, 0usize);
            for record in records(&pack, 200, seed) {
                assert_eq!(faults(&pack, &record), [], "{id} {seed} {record:#?}");
                assert!(record.turns.chunk_by(|a, b| a.speaker == b.speaker).all(|run| run.len() == 1));
                total += record.context_injections.len();
                let is_proactive =
                    |i: &&Injection| placement_of(&record, i.after_turn) == Some(Placement::Proactive);
                proactive += record.context_injections.iter().filter(is_proactive).count();
            }
            let share = proactive as f64 / total as f64;
            assert!((0.63..=0.77).contains(&share), "{id} {seed} {share}");
        }
    }
}

#[test]
fn ids_are_unique_and_a_row_is_the_same_wherever_it_is_written() {
    for (_, pack) in built_in() {
        let first = records(&pack, 40, 3);
        let ids: BTreeSet<&str> = first.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids.len(), 40);
        let design = Design::new(&pack, 40, 3).expect("designs");
        for row in [39u32, 0, 17] {
            let again = generate(&pack, &design, row, 3).expect("generates");
            assert_eq!(Some(&again), first.get(usize::try_from(row).expect("is small")));
        }
        assert_ne!(records(&pack, 40, 4), first);
    }
}

#[test]
fn twelve_dialogues_share_less_than_half_of_their_five_word_runs() {
    let grams = |record: &DialogueRecord| -> BTreeSet<String> {
        let text: Vec<String> = record.turns.iter().map(|t| t.text.to_lowercase()).collect();
        let text = text.join(" ");
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(5).map(|w| w.join(" ")).collect()
    };
    for (id, pack) in built_in() {
        let all: Vec<BTreeSet<String>> = records(&pack, 12, 0).iter().map(grams).collect();
        for (i, a) in all.iter().enumerate() {
            for b in all.iter().skip(i + 1) {
                let jaccard = a.intersection(b).count() as f64 / a.union(b).count() as f64;
                assert!(jaccard < 0.3, "{id} {jaccard}");
            }
        }
    }
}

#[test]
fn a_dialogue_with_few_injections_is_about_a_minute_of_speech() {
    // At 180 words a minute; nine injections with their questions take longer.
    for (id, pack) in built_in() {
        let short: Vec<usize> =
            records(&pack, 100, 2).iter().filter(|r| r.context_injections.len() <= 3).map(words).collect();
        let mean = short.iter().sum::<usize>() / short.len();
        assert!((105..=180).contains(&mean), "{id} {mean}");
    }
}

#[test]
fn the_fact_of_an_injection_is_used_in_an_agent_turn_after_it() {
    use crate::claims::{Known, claims};
    for (id, pack) in built_in() {
        for record in records(&pack, 60, 5) {
            for injection in &record.context_injections {
                let brought = claims(&injection.text);
                let used = record
                    .turns
                    .iter()
                    .filter(|t| t.speaker == Speaker::Agent && t.index > injection.after_turn)
                    .any(|t| brought.iter().all(|c| Known::of(&t.text).supports(c)));
                assert!(used && !brought.is_empty(), "{id} {} {injection:?}", record.id);
            }
        }
    }
}

#[test]
fn a_row_past_the_end_and_a_pack_with_too_few_phrases_are_errors() {
    let (_, mut pack) = built_in().swap_remove(0);
    let design = Design::new(&pack, 10, 0).expect("designs");
    assert!(matches!(generate(&pack, &design, 10, 0), Err(DraftError::NoRow { row: 10, rows: 10 })));
    pack.grammar.exchanges.retain(|e| e.leads);
    let all: Result<Vec<_>, _> = (0..10).map(|row| generate(&pack, &design, row, 0)).collect();
    assert!(matches!(all, Err(DraftError::Turns { .. })));
}
