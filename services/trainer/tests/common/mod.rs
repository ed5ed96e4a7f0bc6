//! A tiny model, dialogues of noise and words, and a listener for what a training tells.
#![allow(dead_code, reason = "each test binary uses a part")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use audio::{Waveform, wav};
use chassis::Stop;
use domain::RunId;
use domain::injection::Injection;
use domain::manifest::Sidecar;
use domain::run::{LoraSpec, MetricPoint, OptimSpec, TrainingSpec};
use ranks::Shared;
use trainer::alarms::Alarm;
use trainer::dataset::{RawDataset, RawDialogue, Recording};
use trainer::plan::{Resume, Take};
use trainer::{Outcome, Plan, Report, TrainError, train};

pub const SECONDS: usize = 24;

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

/// The CPU; `PPX_TEST_DEVICE=cuda` takes a GPU, on which numbers are not equal to the last bit.
#[expect(clippy::disallowed_methods, reason = "a test's own choice")]
pub fn device() -> tch::Device {
    nn::device::choose(&std::env::var("PPX_TEST_DEVICE").unwrap_or_else(|_| "cpu".into())).unwrap()
}

/// Identity of the language model of a folder.
pub fn identity(dir: &Path) -> String {
    weights::checkpoint_sha256(&weights::ModelDir::new(dir).lm()).unwrap()
}

/// What a test run is made of.
pub struct World {
    pub dir: tempfile::TempDir,
    pub run: RunId,
}

/// What a training told.
pub struct Told {
    pub metrics: Vec<MetricPoint>,
    pub checkpoints: Vec<PathBuf>,
    pub alarms: Vec<Alarm>,
    pub result: Result<Outcome, TrainError>,
}

/// A training to be done.
#[derive(Clone, Default)]
pub struct Order {
    pub scratch: String,
    pub resume: Option<Resume>,
    pub stop_after: Option<u32>,
}

pub fn order(scratch: &str) -> Order {
    Order { scratch: scratch.into(), ..Order::default() }
}

pub fn own(dir: &Path) -> Option<Resume> {
    Some(Resume { dir: dir.into(), take: Take::Own })
}

pub fn spec(max_steps: u32) -> TrainingSpec {
    let mut spec = TrainingSpec {
        max_steps,
        batch_size: 1,
        num_microbatches: 2,
        duration_sec: 20.0,
        optim: OptimSpec { lr: 3e-3, ..OptimSpec::default() },
        lora: LoraSpec { rank: 4, ..LoraSpec::default() },
        eval_freq: 0,
        ckpt_freq: 0,
        gradient_checkpointing: false,
        ..TrainingSpec::default()
    };
    spec.probe.enable = false;
    spec
}

impl World {
    /// On the tiny model; `PPX_TEST_BASE` names the folder of another.
    pub fn new() -> Self {
        nn::device::set_threads(1);
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        match std::env::var_os("PPX_TEST_BASE") {
            Some(other) => std::os::unix::fs::symlink(other, base).unwrap(),
            None => drop(weights::init_model(&base, "tiny", 0).unwrap()),
        }
        Self { dir, run: RunId::generate() }
    }

    pub fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    /// A dialogue in which the agent says `words` in turn.
    pub fn dialogue(&self, id: &str, seed: u64, words: &[&str]) -> RawDialogue {
        let n = SECONDS * 24_000;
        let word = |i: usize| {
            let start = i as f64 * 0.5 + 0.2;
            let label = if (i / 6).is_multiple_of(2) { "SPEAKER_BROKER" } else { "SPEAKER_CLIENT" };
            (words[i % words.len()].to_owned(), (start, start + 0.4), label.to_owned())
        };
        let injection =
            Injection { after_turn: 1, text: "Tell the refill date.".into(), frame_offset: Some(60) };
        let sidecar = Sidecar {
            alignments: (0..SECONDS * 2 - 2).map(word).collect(),
            turns: Vec::new(),
            text_prompt: "ROLE: care assistant".into(),
            voice_prompt: None,
            context_injections: vec![injection],
            text_conditions: None,
            alignment_flags: Default::default(),
        };
        let path = self.dir.path().join(format!("{id}.wav"));
        let stereo = Waveform::stereo(24_000, noise(seed, n), noise(seed + 100, n));
        if !path.exists() {
            // Processes of one run may write the same file at once.
            let staged = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
            std::fs::write(staged.path(), wav::encode_pcm16(&stereo).unwrap()).unwrap();
            staged.persist(&path).unwrap();
        }
        RawDialogue { id: id.into(), wav: Recording::new(path), sidecar, voice: None, outcome: None }
    }

    /// A dialogue of ten seconds: both sides hum in turn.
    pub fn short(&self, id: &str, seed: u64) -> RawDialogue {
        let n = 10 * 24_000;
        let mut dialogue = self.dialogue(&format!("{id}-words"), seed, &["hello", "refill"]);
        dialogue.sidecar.alignments.retain(|(_, (_, end), _)| *end < 9.5 - seed as f64);
        dialogue.sidecar.context_injections.clear();
        let hum = |side: usize| -> Vec<f32> {
            let turn = |i: usize| (i / 72_000) % 2 == side;
            (0..n).map(|i| if turn(i) { 0.3 * (i as f32 * 0.05).sin() } else { 0.0 }).collect()
        };
        let path = self.dir.path().join(format!("{id}.wav"));
        let stereo = Waveform::stereo(24_000, hum(0), hum(1));
        let staged = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        std::fs::write(staged.path(), wav::encode_pcm16(&stereo).unwrap()).unwrap();
        staged.persist(&path).unwrap();
        RawDialogue { id: id.into(), wav: Recording::new(path), ..dialogue }
    }

    /// Makes the base give no finite number for any text that holds `word`.
    pub fn poison(&self, word: &str) {
        let config = weights::ModelDir::new(self.base()).load_config().unwrap();
        let bytes = std::fs::read(weights::ModelDir::new(self.base()).tokenizer_of(&config)).unwrap();
        let tokenizer = streams::Tokenizer::from_bytes(&bytes).unwrap();
        let ids = |text: &str| tokenizer.encode(text).unwrap();
        let usual =
            ids("hello refill tablet today ROLE: care assistant <system> Tell the refill date. <context>");
        let own = ids(word).into_iter().find(|id| !usual.contains(id)).unwrap();
        let path = self.base().join("model.safetensors");
        let tensors = tch::Tensor::read_safetensors(&path).unwrap();
        for (name, tensor) in &tensors {
            if name == "text_emb.weight" {
                let _ = tensor.select(0, i64::from(own)).fill_(f64::NAN);
            }
        }
        tch::Tensor::write_safetensors(&tensors, &path).unwrap();
    }

    pub fn data(&self) -> RawDataset {
        let words = ["hello", "refill", "tablet", "today"];
        RawDataset {
            train: vec![self.dialogue("a", 1, &words), self.dialogue("b", 2, &words)],
            eval: vec![RawDialogue { outcome: Some("full_success".into()), ..self.dialogue("c", 3, &words) }],
        }
    }

    pub fn train(&self, spec: &TrainingSpec, order: Order) -> Told {
        self.train_on(self.data(), spec, order, &Shared::alone())
    }

    pub fn train_on(&self, data: RawDataset, spec: &TrainingSpec, order: Order, group: &Shared) -> Told {
        let (reports, mut inbox) = tokio::sync::mpsc::channel(1);
        let told = Arc::new(Mutex::new((Vec::new(), Vec::new(), Vec::new())));
        let steps = Arc::new(AtomicU32::new(0));
        let (t, s) = (Arc::clone(&told), Arc::clone(&steps));
        let listener = std::thread::spawn(move || {
            while let Some(report) = inbox.blocking_recv() {
                match report {
                    Report::Metrics(points) => t.lock().unwrap().0.extend(points),
                    Report::Progress(done, _) => s.store(done, Ordering::SeqCst),
                    Report::Alarm(alarm) => t.lock().unwrap().2.push(alarm),
                    Report::Encoded { .. } => {}
                    Report::Checkpoint { dir, stored, .. } => {
                        t.lock().unwrap().1.push(dir);
                        stored.send(()).unwrap();
                    }
                }
            }
        });
        let stop_after = order.stop_after;
        let plan = Plan {
            spec: spec.clone(),
            run: self.run,
            base: self.base(),
            base_sha256: identity(&self.base()),
            dataset_sha256: "d".into(),
            data,
            resume: order.resume,
            scratch: self.dir.path().join(order.scratch),
            codes: Some(self.dir.path().join("codes")),
            device: device(),
            strict_constants: false,
            stop: Box::new(move || {
                stop_after.filter(|n| steps.load(Ordering::SeqCst) >= *n).map(|_| Stop::Draining)
            }),
            reports,
        };
        let result = train(&plan, group);
        drop(plan);
        listener.join().unwrap();
        let (metrics, checkpoints, alarms) = Arc::into_inner(told).unwrap().into_inner().unwrap();
        Told { metrics, checkpoints, alarms, result }
    }
}

pub fn series(points: &[MetricPoint], name: &str) -> Vec<(u32, f64)> {
    points.iter().filter(|p| p.name == name).map(|p| (p.step, p.value)).collect()
}

pub fn bits(series: &[(u32, f64)]) -> Vec<(u32, u64)> {
    series.iter().map(|(n, v)| (*n, v.to_bits())).collect()
}
