//! What the model says on its own, measured in the middle of a training.

mod common;

use common::{Told, World, order, series, spec};
use domain::run::{MetricPoint, TrainingSpec};
use ranks::Shared;
use trainer::dataset::RawDataset;

fn probing(steps: u32) -> TrainingSpec {
    let mut spec = TrainingSpec { eval_freq: 1, num_microbatches: 1, ..spec(steps) };
    (spec.probe.enable, spec.probe.prompts, spec.probe.seconds) = (true, 2, 2.0);
    spec
}

fn probed(told: &Told) -> Vec<&MetricPoint> {
    told.metrics.iter().filter(|p| p.name.starts_with("probe/")).collect()
}

#[test]
fn at_every_evaluation_of_a_model_that_changes_two_dialogues_give_numbers_in_range() {
    let world = World::new();
    let mut spec = probing(3);
    spec.optim.lr = 3e-2;
    let data = RawDataset {
        train: vec![world.short("a", 1)],
        eval: vec![world.short("b", 2), world.short("c", 3), world.short("d", 4)],
    };
    let told = world.train_on(data, &spec, order("one"), &Shared::alone());
    assert!(told.result.is_ok(), "{:?}", told.result);
    for name in ["nan", "words_per_min", "mute_pct", "longest_repeat_words", "silence_pct", "clipped_pct"] {
        let steps: Vec<u32> = series(&told.metrics, &format!("probe/{name}")).iter().map(|p| p.0).collect();
        assert_eq!(steps, [0, 1, 2, 3], "{name}");
    }
    for point in probed(&told) {
        let high = match point.name.trim_start_matches("probe/") {
            "nan" => 0.0,
            "repeat_ratio" | "distinct_2" => 1.0,
            "first_word_s" => 2.0,
            "longest_repeat_words" => 25.0,
            "words_per_min" => 750.0,
            _ => 100.0,
        };
        assert!((0.0..=high).contains(&point.value), "{point:?}");
    }
    let numbers = |step| -> Vec<u64> {
        probed(&told).iter().filter(|p| p.step == step).map(|p| p.value.to_bits()).collect()
    };
    assert_ne!(numbers(0), numbers(3), "it is the trained model that talks");
}

#[test]
fn a_prompt_that_the_model_has_no_finite_answer_to_is_a_number_and_the_training_goes_on() {
    let world = World::new();
    world.poison("zebra");
    let mut bad = world.short("bad", 2);
    bad.sidecar.text_prompt = "ROLE: zebra".into();
    let data = RawDataset { train: vec![world.short("a", 1)], eval: vec![world.short("b", 3), bad] };
    let told = world.train_on(data, &probing(1), order("one"), &Shared::alone());
    assert!(told.result.is_ok(), "{:?}", told.result);
    let found: Vec<(&str, u32)> = probed(&told).iter().map(|p| (p.name.as_str(), p.step)).collect();
    assert_eq!(found, [("probe/nan", 0), ("probe/nan", 1)]);
    assert!(probed(&told).iter().all(|p| (p.value - 1.0).abs() < 1e-12));
}
