//! The training loop on a tiny model: it learns, stops, goes on exactly, and tells what it does.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{World, bits, identity, order, own, series, spec};
use domain::run::{LoraSpec, LossNorm, OptimSpec, Schedule, TrainingSpec};
use ranks::Shared;
use trainer::TrainError;
use trainer::dataset::RawDataset;
use trainer::plan::{Resume, Take};

#[test]
fn the_loss_falls_the_base_stays_as_it_was_and_the_merged_model_verifies() {
    let world = World::new();
    let before = identity(&world.base());
    let told = world.train(&spec(16), order("one"));
    let outcome = told.result.unwrap();
    let loss = series(&told.metrics, "train/loss");
    assert_eq!(loss.len(), 16);
    let mean = |part: &[(u32, f64)]| part.iter().map(|p| p.1).sum::<f64>() / part.len() as f64;
    assert!(mean(&loss[12..]) < mean(&loss[..4]) - 0.05, "{loss:?}");
    for name in ["eval/loss", "eval/context/text_loss", "eval/outcome_full_success/audio_loss"] {
        let steps: Vec<u32> = series(&told.metrics, name).iter().map(|p| p.0).collect();
        assert_eq!(steps, [0, 16], "baseline and end of {name}");
    }
    assert!(outcome.parameters > 0 && outcome.frames_per_s.unwrap() > 0.0);
    assert_eq!(identity(&world.base()), before);
    let merged = world.dir.path().join("merged");
    weights::lora::merge_model(&world.base(), &outcome.adapter_dir, &merged).unwrap();
    weights::verify(&merged).unwrap();
    assert_ne!(identity(&merged), before);
}

#[test]
fn a_single_window_is_learnt_by_heart_in_two_hundred_steps() {
    let world = World::new();
    let spec = TrainingSpec {
        num_microbatches: 1,
        optim: OptimSpec {
            lr: 1e-2,
            weight_decay: 0.0,
            schedule: Schedule::CosineWarmup,
            ..OptimSpec::default()
        },
        lora: LoraSpec { rank: 32, skip_depformer: false, ..LoraSpec::default() },
        lora_l2_weight: 0.0,
        do_eval: false,
        log_freq: 50,
        ..spec(200)
    };
    let data = RawDataset { train: vec![world.short("a", 1)], eval: Vec::new() };
    let told = world.train_on(data, &spec, order("one"), &Shared::alone());
    told.result.unwrap();
    let loss = series(&told.metrics, "train/loss");
    let (first, last) = (loss[0].1, loss[199].1);
    assert!(last < 0.05 * first, "{first} -> {last}");
}

#[test]
fn a_training_that_was_stopped_goes_on_with_bit_equal_losses() {
    let world = World::new();
    // Noise and the comparison with the base are functions of the step as well.
    let spec = TrainingSpec { neftune_alpha: 5.0, kl_base_weight: 0.1, lora_b_decay: 1e-3, ..spec(8) };
    let whole = world.train(&spec, order("whole"));
    whole.result.unwrap();
    let first = world.train(&spec, common::Order { stop_after: Some(3), ..order("first") });
    assert!(matches!(first.result, Err(TrainError::Stopped(_))));
    let resume = own(first.checkpoints.last().unwrap());
    let second = world.train(&spec, common::Order { resume, ..order("second") });
    second.result.unwrap();
    for name in ["train/loss", "train/grad_norm", "train/kl_base_loss", "train/lr", "train/beta1"] {
        let mut resumed = series(&first.metrics, name);
        resumed.extend(series(&second.metrics, name));
        assert_eq!(bits(&resumed), bits(&series(&whole.metrics, name)), "{name}");
    }
}

#[test]
fn a_checkpoint_of_another_specification_is_refused() {
    let world = World::new();
    let first = world.train(&spec(2), order("first"));
    let resume = own(first.checkpoints.last().unwrap());
    let other = TrainingSpec { seed: 9, ..spec(2) };
    let error = world.train(&other, common::Order { resume, ..order("second") }).result.unwrap_err();
    assert!(error.to_string().contains("another run or specification"), "{error}");
}

#[test]
fn another_run_goes_on_from_a_checkpoint_with_more_steps_or_takes_its_weights_alone() {
    let world = World::new();
    let first = world.train(&spec(4), order("first"));
    let dir = first.checkpoints.last().unwrap();
    let from = |take| Some(Resume { dir: dir.clone(), take });
    let mut longer = spec(6);
    longer.schedule_restart = true;
    let on = world.train(&longer, common::Order { resume: from(Take::Other), ..order("on") });
    on.result.unwrap();
    let steps = |told: &[domain::run::MetricPoint]| -> Vec<u32> {
        series(told, "train/loss").iter().map(|p| p.0).collect()
    };
    assert_eq!(steps(&on.metrics), [5, 6]);
    let warm = world.train(&spec(2), common::Order { resume: from(Take::Weights), ..order("warm") });
    warm.result.unwrap();
    assert_eq!(steps(&warm.metrics), [1, 2]);
    let (learnt, fresh) = (series(&warm.metrics, "eval/loss")[0].1, series(&first.metrics, "eval/loss")[0].1);
    assert_ne!(learnt.to_bits(), fresh.to_bits(), "the weights are the checkpoint's");
    let short = world.train(&spec(4), common::Order { resume: from(Take::Other), ..order("short") });
    assert!(short.result.unwrap_err().to_string().contains("has done 4 steps"));
}

#[test]
fn layers_in_host_memory_give_the_same_numbers() {
    let world = World::new();
    let here = TrainingSpec { gradient_checkpointing: true, ..spec(3) };
    let away = TrainingSpec { offload_frozen: true, ..here.clone() };
    let [here, away] = [("here", here), ("away", away)].map(|(name, spec)| world.train(&spec, order(name)));
    away.result.unwrap();
    for name in ["train/loss", "eval/loss"] {
        assert_eq!(bits(&series(&here.metrics, name)), bits(&series(&away.metrics, name)), "{name}");
    }
}

#[test]
fn every_weight_can_be_trained_stopped_resumed_and_exported_as_a_model() {
    let world = World::new();
    let mut spec = TrainingSpec { full_finetuning: true, ..spec(6) };
    (spec.lora.enable, spec.optim.lr) = (false, 1e-3);
    let whole = world.train(&spec, order("whole"));
    let outcome = whole.result.unwrap();
    let base = weights::verify(&world.base()).unwrap();
    assert!(outcome.parameters > 100_000, "{} {base:?}", outcome.parameters);
    let first = world.train(&spec, common::Order { stop_after: Some(3), ..order("first") });
    let resume = own(first.checkpoints.last().unwrap());
    let second = world.train(&spec, common::Order { resume, ..order("second") });
    let mut resumed = series(&first.metrics, "train/loss");
    resumed.extend(series(&second.metrics, "train/loss"));
    assert_eq!(bits(&resumed), bits(&series(&whole.metrics, "train/loss")));
    assert!(resumed[5].1 < resumed[0].1, "{resumed:?}");
    let out = world.dir.path().join("exported");
    let file = outcome.adapter_dir.join(trainer::checkpointing::WHOLE);
    weights::lora::export_whole(&world.base(), &file, &out).unwrap();
    weights::verify(&out).unwrap();
}

#[test]
fn bf16_weights_are_trained_with_f32_masters_and_gradients_of_many_micro_batches() {
    let world = World::new();
    let mut spec = TrainingSpec {
        full_finetuning: true,
        param_dtype: Some(domain::run::FloatType::Bfloat16),
        do_eval: false,
        ..spec(3)
    };
    (spec.lora.enable, spec.optim.lr) = (false, 1e-5);
    let told = world.train(&spec, order("one"));
    told.result.unwrap();
    // An update of 1e-5 is lost in bf16: the masters hold it.
    let state = tch::Tensor::read_safetensors(told.checkpoints[0].join("train_state.safetensors")).unwrap();
    let masters: Vec<_> = state.iter().filter(|(name, _)| name.starts_with("master.")).collect();
    let finer = |t: &tch::Tensor| {
        let rounded = t.to_kind(tch::Kind::BFloat16).to_kind(tch::Kind::Float);
        (t - rounded).abs().max().double_value(&[]) > 0.0
    };
    assert!(masters.iter().filter(|(_, t)| finer(t)).count() > masters.len() / 2);
}

#[test]
fn embedding_tables_can_be_trained_beside_adapters_and_are_merged_with_them() {
    let world = World::new();
    let mut spec = spec(3);
    spec.lora.ft_embed = true;
    let told = world.train(&spec, order("one"));
    let outcome = told.result.unwrap();
    let out = world.dir.path().join("merged");
    let report = weights::lora::merge_model(&world.base(), &outcome.adapter_dir, &out).unwrap();
    assert!(report.embeddings > 0, "{report:?}");
    weights::verify(&out).unwrap();
}

#[test]
fn every_adapter_is_reached_by_the_loss_and_those_that_are_not_are_named() {
    let world = World::new();
    let mut spec = spec(3);
    spec.lora.skip_depformer = false;
    let told = world.train(&spec, order("all"));
    assert!(told.alarms.is_empty(), "{:?}", told.alarms);
    spec.audio_loss_weight = 0.0;
    let told = world.train(&spec, order("text"));
    let alarm = told.alarms.iter().find(|a| a.code == "unreached").expect("an alarm");
    assert!(alarm.detail.contains("depformer") && alarm.step == 2, "{alarm:?}");
}

#[test]
fn at_every_evaluation_the_model_talks_on_its_own_and_says_the_same_again() {
    let world = World::new();
    let mut spec = TrainingSpec { eval_freq: 1, ..spec(2) };
    (spec.probe.enable, spec.probe.seconds) = (true, 3.0);
    let [told, again] = ["one", "two"].map(|name| world.train(&spec, order(name)));
    assert!(told.result.is_ok(), "{:?}", told.result);
    let found: Vec<_> = told.metrics.iter().filter(|p| p.name.starts_with("probe/")).collect();
    for name in ["probe/words_per_min", "probe/longest_repeat_words", "probe/silence_pct", "probe/mute_pct"] {
        let steps: Vec<u32> = found.iter().filter(|p| p.name == name).map(|p| p.step).collect();
        assert_eq!(steps, [0, 1, 2], "{name}");
    }
    assert!(found.iter().all(|p| !p.name.ends_with("_pct") || (0.0..=100.0).contains(&p.value)), "{found:?}");
    let numbers = |told: &[domain::run::MetricPoint]| -> Vec<(String, u64)> {
        let some = told.iter().filter(|p| p.name.starts_with("probe/") || p.name == "train/loss");
        some.map(|p| (p.name.clone(), p.value.to_bits())).collect()
    };
    assert_eq!(numbers(&told.metrics), numbers(&again.metrics));
    spec.probe.enable = false;
    let silent = world.train(&spec, order("three"));
    let loss = |told: &common::Told| bits(&series(&told.metrics, "train/loss"));
    assert_eq!(loss(&told), loss(&silent), "talking changes nothing of the training");
}

#[test]
fn epochs_decide_the_number_of_steps() {
    let world = World::new();
    let mut spec = TrainingSpec { epochs: Some(2.0), ..spec(1) };
    spec.puppeteer.first_window_weight = 1.0;
    let told = world.train(&spec, order("one"));
    let outcome = told.result.unwrap();
    let windows = outcome.windows.0;
    assert_eq!(outcome.steps as usize, (2 * windows).div_ceil(2), "two windows a step");
}

#[test]
fn a_window_whose_numbers_are_not_finite_is_skipped_by_name_and_five_in_a_row_end_the_run() {
    let world = World::new();
    world.poison("zebra");
    let spec = TrainingSpec { num_microbatches: 1, do_eval: false, lora_l2_weight: 0.0, ..spec(6) };
    let (good, bad) = (world.dialogue("good", 1, &["hello"]), world.dialogue("bad", 2, &["zebra"]));
    let mixed = RawDataset { train: vec![good, bad.clone()], eval: Vec::new() };
    let told = world.train_on(mixed, &spec, order("mixed"), &Shared::alone());
    let outcome = told.result.unwrap();
    let finite = series(&told.metrics, "train/loss").len();
    assert!(outcome.skipped > 0 && finite > 0, "{} skipped, {finite} finite", outcome.skipped);
    assert_eq!(outcome.skipped as usize + finite, 6);
    let only = RawDataset { train: vec![bad], eval: Vec::new() };
    let error = world.train_on(only, &spec, order("only"), &Shared::alone()).result.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("5 steps in a row") && text.contains("bad#"), "{text}");
}

#[test]
fn a_grave_alarm_ends_the_run_with_a_checkpoint_when_asked_to() {
    let world = World::new();
    let mut spec = spec(8);
    (spec.optim.lr, spec.alarms.window, spec.alarms.loss_ratio) = (1.0, 1, 1.2);
    let told = world.train(&spec, order("on"));
    assert_eq!(told.alarms.iter().filter(|a| a.code == "diverging").count(), 1, "{:?}", told.alarms);
    told.result.unwrap();
    spec.alarms.auto_stop = true;
    let told = world.train(&spec, order("stopped"));
    let error = told.result.unwrap_err().to_string();
    assert!(error.contains("alarm diverging at step"), "{error}");
    let steps = series(&told.metrics, "train/loss").len();
    assert!(steps < 8, "{steps}");
    assert!(told.checkpoints[0].ends_with(format!("{steps:06}")), "{:?}", told.checkpoints);
}

#[test]
fn micro_batches_add_up_to_one_large_batch_and_the_older_norm_is_another() {
    let world = World::new();
    let losses = |batch_size, num_microbatches, loss_norm, name: &str| {
        let spec = TrainingSpec { batch_size, num_microbatches, loss_norm, ..spec(3) };
        // Of one length: a shorter window in a batch also learns its last delayed codes.
        let data = RawDataset { train: vec![world.short("a", 1), world.short("b", 2)], eval: Vec::new() };
        let told = world.train_on(data, &spec, order(name), &Shared::alone());
        told.result.unwrap();
        series(&told.metrics, "train/loss")
    };
    let small = losses(1, 2, LossNorm::Global, "small");
    let large = losses(2, 1, LossNorm::Global, "large");
    for ((_, a), (_, b)) in small.iter().zip(&large) {
        assert!((a - b).abs() < 1e-4, "{small:?} {large:?}");
    }
    assert_ne!(bits(&small), bits(&losses(1, 2, LossNorm::PerMicrobatch, "older")));
}

#[test]
fn a_dialogue_without_a_word_of_the_agent_is_refused_by_name() {
    let world = World::new();
    let mut silent = world.dialogue("quiet", 5, &["hello"]);
    for word in &mut silent.sidecar.alignments {
        word.2 = "SPEAKER_CLIENT".into();
    }
    let mut encoder =
        trainer::loader::Encoder::load(&world.base(), tch::Device::Cpu, &spec(1), None).unwrap();
    let error = encoder.windows(&silent).unwrap_err().to_string();
    assert!(error.contains("quiet") && error.contains("0 of 46 words"), "{error}");
}

#[test]
fn recordings_are_encoded_once_and_give_the_same_windows_from_the_cache() {
    let world = World::new();
    let first = world.train(&spec(2), order("first"));
    let second = world.train(&spec(2), order("second"));
    let encoded = |told: &common::Told| series(&told.metrics, "data/recordings_encoded")[0].1;
    assert!((encoded(&first) - 3.0).abs() < 0.5 && encoded(&second) < 0.5);
    assert_eq!(bits(&series(&first.metrics, "train/loss")), bits(&series(&second.metrics, "train/loss")));
}
