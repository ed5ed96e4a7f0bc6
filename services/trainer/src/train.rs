//! The training loop. Blocking; owns the model; tells the service through [`Report`]s.

use std::path::PathBuf;
use std::time::Instant;

use chassis::{JobError, Stop};
use domain::run::{MetricPoint, TrainingSpec};
use personaplex::loss::{LossMetrics, LossSettings, LossWeights};
use personaplex::{Lm, LoraConfig, LossScale, PassOptions};
use tch::{Device, Kind};
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Batch, order};
use crate::checkpointing::{self, StateFacts};
use crate::evaluate::{SLICE_ROWS, diagnostics, evaluate};
use crate::loader::{Encoder, RawDataset, Sample};
use crate::optim::AdamW;
use crate::schedule::OneCycle;
use crate::{Outcome, Report, TrainError};

/// Everything that a training needs, on the local disk.
pub struct Plan {
    /// The specification.
    pub spec: TrainingSpec,
    /// Facts of step 0: which run and specification states must belong to.
    pub facts: StateFacts,
    /// Folder of the base model.
    pub base: PathBuf,
    /// SHA-256 of its `model.safetensors`.
    pub base_sha256: String,
    /// Content hash of the dataset.
    pub dataset_sha256: String,
    /// The dataset's files.
    pub data: RawDataset,
    /// Folder of the checkpoint to go on from.
    pub resume: Option<PathBuf>,
    /// Folder for checkpoints before they are stored.
    pub scratch: PathBuf,
    /// Where to compute.
    pub device: Device,
    /// Whether a codec that does not give the configured prompt codes is refused (else a warning).
    pub strict_constants: bool,
    /// Whether and why to stop.
    pub stop: Box<dyn Fn() -> Option<Stop> + Send>,
    /// Where reports go.
    pub reports: mpsc::Sender<Report>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("facts", &self.facts)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

struct Trainer<'a> {
    plan: &'a Plan,
    lm: Lm,
    optim: AdamW,
    loss: LossSettings,
    pass: PassOptions,
    train: Vec<Sample>,
    eval: Vec<Sample>,
}

/// Trains to the end of the plan and leaves the last adapter in a checkpoint folder.
///
/// # Errors
/// When the data or the model is invalid, numbers stop being finite, or a stop was asked for.
pub fn train(plan: &Plan) -> Result<Outcome, TrainError> {
    tch::manual_seed(i64::from_ne_bytes(plan.spec.seed.to_ne_bytes()));
    let (train, eval) = samples(plan)?;
    let kind = if plan.device.is_cuda() { Kind::BFloat16 } else { Kind::Float };
    let mut lm = Lm::load(&plan.base, plan.device, kind)?;
    let decay = plan.spec.optim.weight_decay;
    let (optim, done) = match &plan.resume {
        Some(dir) => checkpointing::load(dir, &mut lm, |lm| AdamW::new(lm.trainable(), decay), &plan.facts)?,
        None => {
            let lora = &plan.spec.lora;
            let config = LoraConfig {
                rank: i64::from(lora.rank),
                scaling: lora.scaling,
                skip_depformer: lora.skip_depformer,
            };
            lm.add_lora(&config, plan.spec.seed)?;
            (AdamW::new(lm.trainable(), decay), 0)
        }
    };
    let loss = LossSettings {
        text_padding_weight: plan.spec.text_padding_weight,
        first_codebook_weight_multiplier: plan.spec.first_codebook_weight_multiplier,
        ..LossSettings::default()
    };
    // A card's memory is short, a processor's is not for what it can train: there nothing is computed twice.
    let recompute_layers = if plan.device.is_cuda() { usize::MAX } else { 0 };
    let pass = PassOptions { recompute_layers, slice_rows: SLICE_ROWS, ..PassOptions::default() };
    Trainer { plan, lm, optim, loss, pass, train, eval }.run(done)
}

fn samples(plan: &Plan) -> Result<(Vec<Sample>, Vec<Sample>), TrainError> {
    // 12.5 frames a second, rounded down.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "10 to 240 s, checked by the specification"
    )]
    let duration = (plan.spec.duration_sec * domain::frame::FRAME_RATE) as usize;
    let mut encoder = Encoder::load(&plan.base, plan.device, duration)?;
    encoder.check_constants(plan.strict_constants)?;
    let mut side = |dialogues: &[crate::loader::RawDialogue]| -> Result<Vec<Sample>, TrainError> {
        let mut all = Vec::new();
        for dialogue in dialogues {
            if let Some(stop) = (plan.stop)() {
                return Err(JobError::Stopped(stop).into());
            }
            all.extend(encoder.windows(dialogue, &plan.data.voices)?);
        }
        Ok(all)
    };
    let (train, eval) = (side(&plan.data.train)?, side(&plan.data.eval)?);
    if train.is_empty() {
        return Err(TrainError::Empty(format!("{} dialogues in train.jsonl", plan.data.train.len())));
    }
    Ok((train, eval))
}

impl Trainer<'_> {
    fn run(mut self, done: u32) -> Result<Outcome, TrainError> {
        let spec = &self.plan.spec;
        let (max_steps, schedule) = (
            spec.max_steps,
            OneCycle { max_lr: spec.optim.lr, steps: spec.max_steps, pct_start: spec.optim.pct_start },
        );
        if done == 0 {
            self.report_eval(0)?;
        }
        let (started, mut frames, mut saved) = (Instant::now(), 0usize, None);
        for step in done + 1..=max_steps {
            if self.plan.reports.is_closed() {
                // Nobody writes down what this attempt does any more.
                return Err(JobError::Stopped(Stop::LeaseLost).into());
            }
            if let Some(stop) = (self.plan.stop)() {
                return Err(self.stopped(stop, step - 1, saved == Some(step - 1) || step - 1 == done)?);
            }
            let (lr, beta1) = schedule.at(step - 1);
            frames += self.step(step, lr, beta1)?;
            self.send(Report::Progress(step, max_steps));
            let due = |every: u32| step == max_steps || (every > 0 && step % every == 0);
            if due(spec.eval_freq) {
                self.report_eval(step)?;
            }
            if due(spec.ckpt_freq) {
                self.checkpoint(step)?;
                saved = Some(step);
            }
        }
        let adapter_dir = match (&self.plan.resume, saved) {
            (Some(dir), None) => dir.clone(),
            _ => self.checkpoint_dir(max_steps),
        };
        let seconds = started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a count for a rate")]
        let rate = (frames > 0).then(|| frames as f64 / seconds);
        Ok(Outcome {
            adapter_dir,
            parameters: self.optim.parameters(),
            windows: (self.train.len(), self.eval.len()),
            frames_per_s: rate,
        })
    }

    /// One optimizer update; returns the real frames that it saw.
    fn step(&mut self, step: u32, lr: f64, beta1: f64) -> Result<usize, TrainError> {
        let began = Instant::now();
        let spec = &self.plan.spec;
        let batches = self.batches(step);
        let mut weighed = Vec::with_capacity(batches.len());
        for batch in batches {
            let weights = LossWeights::new(
                &batch.codes,
                self.lm.config(),
                &batch.prompt_lengths,
                Some(&batch.context_mask),
                &self.loss,
            )?;
            weighed.push((batch, weights));
        }
        // Normalised by the weight of the whole update, so that micro-batches of any shape add up to one large batch.
        let text_weight: f64 = weighed.iter().map(|(_, w)| w.text_sum()).sum();
        let audio_weight: f64 = weighed.iter().map(|(_, w)| w.audio_sum()).sum();
        let share = |weight: f64, total: f64| if total > 0.0 { weight / total } else { 0.0 };
        let (text_share, audio_share) =
            (share(spec.text_loss_weight, text_weight), share(spec.audio_loss_weight, audio_weight));
        self.optim.zero_grad();
        let scale = LossScale { text: text_share, audio: audio_share, kl: 0.0 };
        let (mut text, mut audio, mut l2) = (0.0, 0.0, 0.0);
        let mut seen = LossMetrics::default();
        for (batch, weights) in &weighed {
            let sums = self.lm.backward(&batch.codes, weights, scale, &self.pass)?;
            text += sums.text_sum;
            audio += sums.audio_sum;
            seen.add(&sums.metrics);
        }
        if let Some(square) = self.optim.squared_b().filter(|_| spec.lora_l2_weight > 0.0) {
            let term = square * spec.lora_l2_weight;
            l2 = term.double_value(&[]);
            term.backward();
        }
        let (text_mean, audio_mean) = (share(text, text_weight), share(audio, audio_weight));
        let total = spec.text_loss_weight * text_mean + spec.audio_loss_weight * audio_mean + l2;
        let norm = self.optim.grad_norm();
        let names = || weighed.iter().map(|(b, _)| b.names.as_str()).collect::<Vec<_>>().join(", ");
        for (what, value) in [("the loss", total), ("the gradient norm", norm)] {
            if !value.is_finite() {
                return Err(TrainError::NotFinite { what, value, step, windows: names() });
            }
        }
        self.optim.step(lr, beta1, (spec.max_norm / (norm + 1e-6)).min(1.0));
        let frames: usize = weighed.iter().map(|(b, _)| b.frames).sum();
        #[expect(clippy::cast_precision_loss, reason = "a count for a rate")]
        let rate = frames as f64 / began.elapsed().as_secs_f64();
        let values = [
            ("train/loss", total),
            ("train/text_loss", text_mean),
            ("train/audio_loss", audio_mean),
            ("train/lora_l2_loss", l2),
            ("train/lr", lr),
            ("train/grad_norm", norm),
            ("train/frames_per_s", rate),
        ];
        let mut points = values.map(|(name, value)| MetricPoint { step, name: name.into(), value }).to_vec();
        points.extend(diagnostics("train", step, &seen));
        self.send(Report::Metrics(points));
        Ok(frames)
    }

    fn batches(&self, step: u32) -> Vec<Batch> {
        let spec = &self.plan.spec;
        let (size, micro) = (spec.batch_size as usize, spec.num_microbatches as usize);
        let start = u64::from(step - 1) * (size * micro) as u64;
        order(spec.seed, self.train.len(), start, size * micro)
            .chunks(size)
            .map(|picked| {
                Batch::collate(&picked.iter().map(|i| &self.train[*i]).collect::<Vec<_>>(), self.plan.device)
            })
            .collect()
    }

    fn report_eval(&self, step: u32) -> Result<(), TrainError> {
        if self.eval.is_empty() {
            return Ok(());
        }
        let spec = &self.plan.spec;
        let loss = evaluate(&self.lm, &self.eval, spec.batch_size as usize, &self.loss, self.plan.device)?;
        let total = loss.total(spec.text_loss_weight, spec.audio_loss_weight);
        self.send(Report::Metrics(loss.points(step, total)));
        Ok(())
    }

    fn checkpoint_dir(&self, step: u32) -> PathBuf {
        self.plan.scratch.join(format!("{step:06}"))
    }

    /// Writes a checkpoint and waits until it is stored and listed.
    fn checkpoint(&self, step: u32) -> Result<PathBuf, TrainError> {
        let dir = self.checkpoint_dir(step);
        let facts = StateFacts { step, ..self.plan.facts.clone() };
        checkpointing::save(
            &dir,
            &self.lm,
            &self.optim,
            &facts,
            &self.plan.base_sha256,
            &self.plan.dataset_sha256,
        )?;
        let (stored, answer) = oneshot::channel();
        self.send(Report::Checkpoint { step, dir: dir.clone(), stored });
        // An answer that never comes means that the service has given up on this attempt; the next stop check sees it.
        if answer.blocking_recv().is_err() {
            return Err(JobError::Stopped(Stop::LeaseLost).into());
        }
        Ok(dir)
    }

    /// A process that goes down keeps the steps done; a cancelled or lost job needs nothing kept.
    fn stopped(&self, stop: Stop, done: u32, is_saved: bool) -> Result<TrainError, TrainError> {
        if stop == Stop::Draining && !is_saved {
            self.checkpoint(done)?;
        }
        Ok(JobError::Stopped(stop).into())
    }

    fn send(&self, report: Report) {
        // The receiver is gone only when the attempt is over; the stop check ends the loop.
        let _gone = self.plan.reports.blocking_send(report);
    }
}

/// Identity of the language model of a model folder, from the hashes that its registration recorded.
#[must_use]
pub fn model_sha256(files: &[domain::dataset::DatasetFile]) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let files: Vec<_> = files.iter().map(|f| (name(&f.path), f.sha256.as_str())).collect();
    weights::lm_sha256(files.iter().map(|(name, hash)| (name.as_str(), *hash))).unwrap_or_default()
}
