#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use domain::RunId;
use domain::run::{MetricPoint, TrainingSpec};
use personaplex::LoraConfig;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use streams::Window;
use streams::tokens::PAD;
use tch::{Device, Kind, Tensor};

use super::*;
use crate::dataset::RawDataset;

const SILENCE: [i32; 8] = [1; 8];

/// A window of random codes: a prompt of 10 frames, then 15 of conversation, with text only in the prompt.
fn sample(dialogue: &str, index: usize) -> Sample {
    let seed = dialogue.bytes().map(u64::from).sum::<u64>() + index as u64;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let frame = |i: usize| {
        let text = if i < 10 { 100 + i as i32 } else { PAD };
        std::array::from_fn(|k| if k == 0 { text } else { rng.random_range(0..32) })
    };
    let window = Window {
        frames: (0..25).map(frame).collect(),
        prompt_len: 10,
        context_mask: vec![false; 25],
        valid_frames: 25,
        index,
        start: 0,
        end: 15,
        weight: 1.0,
    };
    Sample { dialogue: dialogue.into(), outcome: None, window }
}

fn plan(base: &Path, seed: u64) -> Plan {
    let mut spec = TrainingSpec { seed, ..TrainingSpec::default() };
    (spec.probe.prompts, spec.probe.seconds) = (2, 2.0);
    Plan {
        spec,
        run: RunId::generate(),
        base: base.into(),
        base_sha256: String::new(),
        dataset_sha256: String::new(),
        data: RawDataset { train: Vec::new(), eval: Vec::new() },
        resume: None,
        scratch: base.into(),
        codes: None,
        device: Device::Cpu,
        strict_constants: false,
        stop: Box::new(|| None),
        reports: tokio::sync::mpsc::channel(1).0,
    }
}

/// A tiny model with adapters as training has them after some steps: f32 leaves, none of them zero.
fn model(base: &Path, kind: Kind) -> Lm {
    nn::device::set_threads(1);
    weights::init_model(base, "tiny", 0).unwrap();
    let mut lm = Lm::load(base, Device::Cpu, kind).unwrap();
    lm.add_lora(&LoraConfig { rank: 4, scaling: 2.0, skip_depformer: false, embeddings: false }, 0).unwrap();
    fill(&lm, 0.02);
    lm
}

/// Sets every B to one value, as an update would: in place.
fn fill(lm: &Lm, value: f64) {
    tch::no_grad(|| {
        for mut param in lm.trainable().into_iter().filter(personaplex::Param::is_b) {
            let _ = param.tensor.fill_(value);
        }
    });
}

/// Values and gradients of everything that is trained.
fn trained(lm: &Lm) -> Vec<(Tensor, Tensor)> {
    lm.trainable().iter().map(|p| (p.tensor.detach().copy(), p.tensor.grad().copy())).collect()
}

fn bits(points: Vec<MetricPoint>) -> Vec<(String, u64)> {
    points.into_iter().map(|p| (p.name, p.value.to_bits())).collect()
}

#[test]
fn talking_twice_gives_the_same_numbers_and_leaves_values_and_gradients_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    let lm = model(&base, Kind::Float);
    let squares: Vec<Tensor> = lm.trainable().iter().map(|p| p.tensor.square().sum(Kind::Float)).collect();
    Tensor::stack(&squares, 0).sum(Kind::Float).backward();
    let before = trained(&lm);
    let samples = [sample("a", 0), sample("b", 0), sample("c", 0)];
    let plan = plan(&base, 0);
    let first = probe(&lm, &plan, &samples, 3).unwrap();
    assert_eq!(trained(&lm), before);
    assert!(lm.trainable().iter().all(|p| p.tensor.requires_grad() && p.tensor.is_leaf()));
    let get = |name: &str| first.get(name);
    assert_eq!(get("nan"), Some(0.0));
    for name in ["mute_pct", "silence_pct", "screech_pct", "clipped_pct"] {
        assert!((0.0..=100.0).contains(&get(name).unwrap()), "{name}: {:?}", get(name));
    }
    for name in ["repeat_ratio", "distinct_2"] {
        assert!(get(name).is_none_or(|v| (0.0..=1.0).contains(&v)), "{name}: {:?}", get(name));
    }
    // No more than one word a frame.
    assert!((0.0..=750.0).contains(&get("words_per_min").unwrap()));
    assert!((0.0..=25.0).contains(&get("longest_repeat_words").unwrap()));
    assert!(get("first_word_s").is_none_or(|v| (0.0..2.0).contains(&v)));
    let first = first.take();
    assert!(first.iter().all(|p| p.step == 3));
    assert_eq!(bits(first), bits(probe(&lm, &plan, &samples, 3).unwrap().take()));
    assert_eq!(trained(&lm), before);
}

#[test]
fn the_adapters_as_they_are_now_speak_in_either_type_of_the_base() {
    for kind in [Kind::Float, Kind::BFloat16] {
        let dir = tempfile::tempdir().unwrap();
        let lm = model(&dir.path().join("base"), kind);
        let samples = [sample("a", 0)];
        let plan = plan(&dir.path().join("base"), 0);
        let talk = Talk { spec: &plan.spec.probe, seed: 0, silence: SILENCE };
        let say = || talk.all(&lm, &[&samples[0]], 1).unwrap().expect("finite");
        let first = say();
        assert_eq!((first[0].text.len(), first[0].codes.len()), (25, 25));
        fill(&lm, -0.3);
        assert_ne!(say(), first, "{kind:?}");
    }
}

#[test]
fn a_prompt_is_answered_alike_alone_and_beside_others_and_otherwise_with_another_seed() {
    let dir = tempfile::tempdir().unwrap();
    let lm = model(&dir.path().join("base"), Kind::Float);
    let samples = [sample("a", 0), sample("b", 0), sample("c", 1)];
    let samples: Vec<&Sample> = samples.iter().collect();
    let plan = plan(&dir.path().join("base"), 0);
    let say = |seed: u64, slots: usize| {
        let talk = Talk { spec: &plan.spec.probe, seed, silence: SILENCE };
        talk.all(&lm, &samples, slots).unwrap().expect("finite")
    };
    let together = say(0, 3);
    assert_eq!(together, say(0, 1));
    assert_eq!(together, say(0, 2));
    assert_ne!(together, say(1, 3));
    assert_eq!(together.iter().map(|s| s.begins).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn the_recorded_user_is_heard_and_then_silence() {
    let dir = tempfile::tempdir().unwrap();
    let lm = model(&dir.path().join("base"), Kind::Float);
    let mut short = sample("a", 0);
    short.window.frames.truncate(20);
    let mut padded = short.clone();
    padded.window.pad_to(40);
    let mut silent = short.clone();
    let silence = [SILENCE; 15].into_iter().map(|user| {
        let mut frame = streams::layout::EMPTY_FRAME;
        frame[9..].copy_from_slice(&user);
        frame
    });
    silent.window.frames.extend(silence);
    let mut other = short.clone();
    other.window.frames[12][9..].copy_from_slice(&SILENCE);
    let plan = plan(&dir.path().join("base"), 0);
    let talk = Talk { spec: &plan.spec.probe, seed: 0, silence: SILENCE };
    let say = |sample: &Sample| talk.all(&lm, &[sample], 1).unwrap().expect("finite");
    assert_eq!(say(&short), say(&padded));
    assert_eq!(say(&short), say(&silent));
    assert_ne!(say(&short), say(&other), "the model hears the user");
}

#[test]
fn numbers_that_are_not_finite_are_told_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    let lm = model(&base, Kind::Float);
    fill(&lm, f64::NAN);
    let points = probe(&lm, &plan(&base, 0), &[sample("a", 0)], 1).unwrap();
    let found: Vec<(String, f64)> = points.take().into_iter().map(|p| (p.name, p.value)).collect();
    assert_eq!(found, [("probe/nan".into(), 1.0)]);
}

#[test]
fn the_earliest_window_of_each_of_the_first_dialogues_is_a_prompt() {
    let samples = [sample("b", 2), sample("a", 0), sample("b", 1), sample("a", 1), sample("c", 3)];
    let found = |n| -> Vec<(String, usize)> {
        openings(&samples, n).iter().map(|s| (s.dialogue.clone(), s.window.index)).collect()
    };
    assert_eq!(found(2), [("b".into(), 1), ("a".into(), 0)]);
    assert_eq!(found(8).len(), 3);
    assert!(openings(&[], 8).is_empty());
}

#[test]
fn a_prompt_longer_than_the_model_remembers_loses_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let lm = model(&dir.path().join("base"), Kind::Float);
    let mut long = sample("a", 0);
    let context = usize::try_from(lm.config().context).unwrap();
    let more = (0..context).map(|i| long.window.frames[i % 10]).collect::<Vec<_>>();
    long.window.frames.splice(0..0, more);
    long.window.prompt_len += context;
    let plan = plan(&dir.path().join("base"), 0);
    let talk = Talk { spec: &plan.spec.probe, seed: 0, silence: SILENCE };
    let said = talk.all(&lm, &[&long], 1).unwrap().expect("finite");
    assert_eq!(said[0].text.len(), 25);
}
