//! The training loop on a tiny model and a dialogue of noise and words: it learns, and it resumes exactly.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use audio::{Waveform, wav};
use chassis::Stop;
use domain::RunId;
use domain::injection::Injection;
use domain::manifest::Sidecar;
use domain::run::{LoraSpec, MetricPoint, OptimSpec, TrainingSpec};
use trainer::checkpointing::StateFacts;
use trainer::loader::{RawDataset, RawDialogue};
use trainer::{Outcome, Plan, Report, TrainError, train};

const SECONDS: usize = 24;

fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 40) as f32 / (1u64 << 24) as f32 * 0.4 - 0.2
        })
        .collect()
}

fn dialogue(id: &str, seed: u64) -> RawDialogue {
    let n = SECONDS * 24_000;
    let word = |i: usize| {
        let start = i as f64 * 0.5 + 0.2;
        let label = if (i / 6).is_multiple_of(2) { "SPEAKER_BROKER" } else { "SPEAKER_CLIENT" };
        (["hello", "refill", "tablet", "today"][i % 4].to_owned(), (start, start + 0.4), label.to_owned())
    };
    let injection = Injection { after_turn: 1, text: "Tell the refill date.".into(), frame_offset: Some(60) };
    let sidecar = Sidecar {
        alignments: (0..SECONDS * 2 - 2).map(word).collect(),
        turns: Vec::new(),
        text_prompt: "ROLE: care assistant".into(),
        voice_prompt: None,
        context_injections: vec![injection],
        text_conditions: None,
        alignment_flags: Default::default(),
    };
    let stereo = Waveform::stereo(24_000, noise(seed, n), noise(seed + 100, n));
    RawDialogue { id: id.into(), wav: wav::encode_pcm16(&stereo).unwrap(), sidecar, voice: None }
}

fn spec(max_steps: u32) -> TrainingSpec {
    TrainingSpec {
        max_steps,
        batch_size: 1,
        num_microbatches: 2,
        duration_sec: 20.0,
        optim: OptimSpec { lr: 3e-3, ..OptimSpec::default() },
        lora: LoraSpec { rank: 4, ..LoraSpec::default() },
        eval_freq: 0,
        ckpt_freq: 0,
        ..TrainingSpec::default()
    }
}

struct World {
    dir: tempfile::TempDir,
    run: RunId,
}

struct Told {
    metrics: Vec<MetricPoint>,
    checkpoints: Vec<PathBuf>,
    result: Result<Outcome, TrainError>,
}

impl World {
    fn new() -> Self {
        nn::device::set_threads(1);
        let dir = tempfile::tempdir().unwrap();
        weights::init_model(&dir.path().join("base"), "tiny", 0).unwrap();
        Self { dir, run: RunId::generate() }
    }

    fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    fn train(
        &self,
        spec: &TrainingSpec,
        scratch: &str,
        resume: Option<&Path>,
        stop_after: Option<u32>,
    ) -> Told {
        let (reports, mut inbox) = tokio::sync::mpsc::channel(1);
        let (metrics, checkpoints) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let steps = Arc::new(AtomicU32::new(0));
        let (m, c, s) = (Arc::clone(&metrics), Arc::clone(&checkpoints), Arc::clone(&steps));
        let listener = std::thread::spawn(move || {
            while let Some(report) = inbox.blocking_recv() {
                match report {
                    Report::Metrics(points) => m.lock().unwrap().extend(points),
                    Report::Progress(done, _) => s.store(done, Ordering::SeqCst),
                    Report::Checkpoint { dir, stored, .. } => {
                        c.lock().unwrap().push(dir);
                        stored.send(()).unwrap();
                    }
                }
            }
        });
        let data = RawDataset {
            train: vec![dialogue("a", 1), dialogue("b", 2)],
            eval: vec![dialogue("c", 3)],
            voices: HashMap::new(),
        };
        let plan = Plan {
            spec: spec.clone(),
            facts: StateFacts::new(self.run, spec, 0),
            base: self.base(),
            base_sha256: weights::sha256_file(&self.base().join("model.safetensors")).unwrap(),
            dataset_sha256: "d".into(),
            data,
            resume: resume.map(Path::to_path_buf),
            scratch: self.dir.path().join(scratch),
            device: tch::Device::Cpu,
            strict_constants: false,
            stop: Box::new(move || {
                stop_after.filter(|n| steps.load(Ordering::SeqCst) >= *n).map(|_| Stop::Draining)
            }),
            reports,
        };
        let result = train(&plan);
        drop(plan);
        listener.join().unwrap();
        let told = |m: Arc<Mutex<Vec<_>>>| Arc::into_inner(m).unwrap().into_inner().unwrap();
        Told {
            metrics: told(metrics),
            checkpoints: Arc::into_inner(checkpoints).unwrap().into_inner().unwrap(),
            result,
        }
    }
}

fn series(points: &[MetricPoint], name: &str) -> Vec<(u32, f64)> {
    points.iter().filter(|p| p.name == name).map(|p| (p.step, p.value)).collect()
}

#[test]
fn the_loss_falls_the_base_stays_as_it_was_and_the_merged_model_verifies() {
    let world = World::new();
    let before = weights::sha256_file(&world.base().join("model.safetensors")).unwrap();
    let told = world.train(&spec(16), "one", None, None);
    let outcome = told.result.unwrap();
    let loss = series(&told.metrics, "train/loss");
    assert_eq!(loss.len(), 16);
    let mean = |part: &[(u32, f64)]| part.iter().map(|p| p.1).sum::<f64>() / part.len() as f64;
    assert!(mean(&loss[12..]) < mean(&loss[..4]) - 0.05, "{loss:?}");
    let eval = series(&told.metrics, "eval/loss");
    assert_eq!(eval.iter().map(|p| p.0).collect::<Vec<_>>(), [0, 16], "baseline and end");
    assert!(outcome.parameters > 0 && outcome.frames_per_s.unwrap() > 0.0);
    assert_eq!(weights::sha256_file(&world.base().join("model.safetensors")).unwrap(), before);
    let merged = world.dir.path().join("merged");
    weights::lora::merge_model(&world.base(), &outcome.adapter_dir, &merged).unwrap();
    weights::verify(&merged).unwrap();
    assert_ne!(weights::sha256_file(&merged.join("model.safetensors")).unwrap(), before);
}

#[test]
fn a_training_that_was_stopped_goes_on_with_bit_equal_losses() {
    let world = World::new();
    let spec = spec(8);
    let whole = world.train(&spec, "whole", None, None);
    whole.result.unwrap();
    let first = world.train(&spec, "first", None, Some(3));
    assert!(matches!(first.result, Err(TrainError::Stopped(_))));
    let checkpoint = first.checkpoints.last().unwrap();
    let second = world.train(&spec, "second", Some(checkpoint), None);
    second.result.unwrap();
    let mut resumed = series(&first.metrics, "train/loss");
    resumed.extend(series(&second.metrics, "train/loss"));
    let bits = |s: &[(u32, f64)]| s.iter().map(|(n, v)| (*n, v.to_bits())).collect::<Vec<_>>();
    assert_eq!(bits(&resumed), bits(&series(&whole.metrics, "train/loss")));
}

#[test]
fn a_checkpoint_of_another_specification_is_refused() {
    let world = World::new();
    let first = world.train(&spec(2), "first", None, None);
    let checkpoint = first.checkpoints.last().unwrap();
    let other = TrainingSpec { seed: 9, ..spec(2) };
    let error = world.train(&other, "second", Some(checkpoint), None).result.unwrap_err();
    assert!(error.to_string().contains("another run or specification"), "{error}");
}

#[test]
fn a_dialogue_without_a_word_of_the_agent_is_refused_by_name() {
    let world = World::new();
    let mut silent = dialogue("quiet", 5);
    for word in &mut silent.sidecar.alignments {
        word.2 = "SPEAKER_CLIENT".into();
    }
    let mut encoder = trainer::loader::Encoder::load(&world.base(), tch::Device::Cpu, 250).unwrap();
    let error = encoder.windows(&silent, &HashMap::new()).unwrap_err().to_string();
    assert!(error.contains("quiet") && error.contains("0 of 46 words"), "{error}");
}
