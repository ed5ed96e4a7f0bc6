//! The training loop. Blocking; owns the model; tells the service through [`Report`]s.

use std::path::PathBuf;
use std::time::Instant;

use chassis::{JobError, Stop};
use domain::run::{MetricPoint, TrainingSpec};
use personaplex::Lm;
use ranks::{Group, Shared};
use tokio::sync::oneshot;

use crate::alarms::{Alarm, Seen};
use crate::evaluate::evaluate;
use crate::loader::Sample;
use crate::numbers::Points;
use crate::optim::AdamW;
use crate::order::{self, Order};
use crate::plan::{Plan, State};
use crate::probe::probe;
use crate::samples::{Samples, samples};
use crate::schedule::LrPlan;
use crate::update::{Rules, loss_settings, pass_options};
use crate::{Outcome, Report, TrainError, checkpointing, model};

/// Steps in a row that may be skipped because a number was not finite.
const MAX_SKIPPED: u32 = 5;

/// Trains to the end of the plan and leaves the last adapter in a checkpoint folder. Every process of the group makes this
/// call with the same plan; rank 0 reports and saves.
///
/// # Errors
/// When the data or the model is invalid, numbers stop being finite, or a stop was asked for.
pub fn train(plan: &Plan, group: &Shared) -> Result<Outcome, TrainError> {
    let samples = samples(plan, group)?;
    let weights = samples.train.iter().map(|s| s.window.weight).collect();
    let order = Order::new(plan.spec.seed, plan.spec.data.shuffle, weights);
    let max_steps = steps(&plan.spec, order.epoch_length(), group.world());
    let (lm, optim, state) = model::load(plan, max_steps, group)?;
    let rules = Rules {
        spec: &plan.spec,
        loss: loss_settings(&plan.spec),
        pass: pass_options(&plan.spec),
        plan: LrPlan::new(&plan.spec.optim, state.max_steps, state.planned_from),
        device: plan.device,
    };
    Trainer { plan, group, rules, lm, optim, state, order, samples, last: Vec::new() }.run()
}

/// Steps of a run: those of the specification, or as many as its epochs need.
fn steps(spec: &TrainingSpec, epoch: usize, world: usize) -> u32 {
    let Some(epochs) = spec.epochs else { return spec.max_steps };
    let windows = f64::from(spec.batch_size) * f64::from(spec.num_microbatches) * world as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of at least 1")]
    let steps = (epochs * epoch as f64 / windows).ceil().max(1.0) as u32;
    steps
}

struct Trainer<'a> {
    plan: &'a Plan,
    group: &'a Shared,
    rules: Rules<'a>,
    lm: Lm,
    optim: AdamW,
    state: State,
    order: Order,
    samples: Samples,
    /// Numbers of the last step and the last evaluation, kept with a checkpoint.
    last: Vec<MetricPoint>,
}

impl Trainer<'_> {
    fn run(mut self) -> Result<Outcome, TrainError> {
        let spec = &self.plan.spec;
        let (began, first_frames, max_steps) = (Instant::now(), self.state.frames, self.state.max_steps);
        let mut saved = (self.state.step > 0).then_some(self.state.step);
        self.describe();
        if self.state.step == 0 {
            let alarms = self.evaluate()?;
            self.raise(alarms);
        }
        while self.state.step < max_steps {
            if let Some(stop) = self.stop()? {
                return Err(self.stopped(stop, saved)?);
            }
            let alarms = self.step()?;
            let step = self.state.step;
            let due = |every: u32| step == max_steps || (every > 0 && step.is_multiple_of(every));
            let mut grave = self.raise(alarms);
            if due(spec.eval_freq) {
                let alarms = self.evaluate()?;
                grave = grave.or(self.raise(alarms));
            }
            let ends = grave.filter(|_| spec.alarms.auto_stop);
            if due(spec.ckpt_freq) && (spec.do_ckpt || step == max_steps) || ends.is_some() {
                self.checkpoint()?;
                saved = Some(step);
            }
            if let Some(alarm) = ends {
                return Err(TrainError::Alarm { alarm });
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let frames = self.state.frames - first_frames;
        let adapter_dir = match &self.plan.resume {
            Some(resume) if frames == 0 => resume.dir.clone(),
            _ => self.checkpoint_dir(max_steps),
        };
        Ok(Outcome {
            adapter_dir,
            steps: max_steps,
            parameters: self.optim.parameters(),
            windows: (self.samples.train.len(), self.samples.eval.len()),
            frames_per_s: (frames > 0).then(|| frames as f64 / seconds),
            skipped: self.state.skipped,
            alarms: self.state.alarms.told().to_vec(),
        })
    }

    /// One step; returns new alarms.
    fn step(&mut self) -> Result<Vec<Alarm>, TrainError> {
        let spec = &self.plan.spec;
        let step = self.state.step + 1;
        let count = (spec.batch_size * spec.num_microbatches) as usize * self.group.world();
        let drawn = self.order.draw(self.state.drawn, count);
        let own = order::share(&drawn, self.group.rank(), self.group.world());
        let own: Vec<&Sample> = own.iter().map(|i| &self.samples.train[*i]).collect();
        let update = self.rules.update(step, &own, &self.lm, &mut self.optim, self.group)?;
        let state = &mut self.state;
        state.step = step;
        state.updates = self.optim.updates();
        state.drawn += count as u64;
        state.frames += update.frames;
        let mut points = update.points;
        if let Some(fault) = update.fault {
            (state.skipped, state.skipped_in_a_row) = (state.skipped + 1, state.skipped_in_a_row + 1);
            tracing::warn!(%fault, in_a_row = state.skipped_in_a_row, "the step is skipped");
            if state.skipped_in_a_row >= MAX_SKIPPED {
                return Err(TrainError::NotFinite { detail: fault, in_a_row: MAX_SKIPPED });
            }
        } else {
            state.skipped_in_a_row = 0;
        }
        points.add("skipped_steps", f64::from(state.skipped));
        if step.is_multiple_of(spec.log_freq) || step == state.max_steps {
            let get = |name| points.get(name);
            tracing::info!(
                step,
                of = state.max_steps,
                loss = get("loss"),
                frames_per_s = get("frames_per_s"),
                "step"
            );
        }
        let seen = Seen {
            loss: points.get("loss"),
            pred_pad_pct: points.get("pred_pad_pct"),
            l2_grad_ratio: (spec.lora_l2_weight > 0.0).then(|| points.get("l2_grad_ratio")).flatten(),
        };
        let mut alarms = state.alarms.step(&spec.alarms, step, seen);
        alarms.extend(state.alarms.unreached(step, &update.unreached));
        self.memory(&mut points);
        self.tell(points);
        self.send(Report::Progress(step, self.state.max_steps));
        Ok(alarms)
    }

    fn memory(&self, points: &mut Points) {
        if self.plan.device.is_cuda()
            && let Ok(stats) = nn::graph::memory_stats(self.plan.device)
        {
            points.add("peak_memory_gib", stats.allocated_peak as f64 / f64::from(1 << 30));
        }
    }

    /// What the data held, once per attempt.
    fn describe(&self) {
        let counts = self.samples.counts;
        let mut points = Points::new("data", self.state.step);
        points
            .add("windows_train", self.samples.train.len() as f64)
            .add("windows_eval", self.samples.eval.len() as f64)
            .add("injections", counts.injections as f64)
            .add("context_tokens", counts.context_tokens as f64)
            .add("deferred_frames", counts.deferred_frames as f64)
            .add("inserted_frames", counts.inserted_frames as f64)
            .add("recordings_encoded", counts.encoded as f64);
        self.send(Report::Metrics(points.take()));
    }

    fn evaluate(&mut self) -> Result<Vec<Alarm>, TrainError> {
        if self.samples.eval.is_empty() {
            return Ok(Vec::new());
        }
        let (rules, step) = (&self.rules, self.state.step);
        let points =
            evaluate(&self.lm, &self.samples.eval, rules.spec, &rules.loss, rules.device, self.group, step)?;
        self.tell(points);
        // Rank 0 alone: generation needs all layers at hand.
        let spec = self.rules.spec;
        if !spec.probe.enable || spec.offload_frozen || spec.shard_frozen || self.group.rank() > 0 {
            return Ok(Vec::new());
        }
        let points = probe(&self.lm, self.plan, &self.samples.eval, step)?;
        let (repeats, nan) = (points.get("repeat_ratio"), points.get("nan").is_some_and(|n| n > 0.0));
        self.tell(points);
        Ok(self.state.alarms.probe(&spec.alarms, step, repeats, nan))
    }

    /// Passes alarms on; returns the first grave one.
    fn raise(&self, alarms: Vec<Alarm>) -> Option<Alarm> {
        let grave = alarms.iter().find(|a| a.grave).cloned();
        for alarm in alarms {
            tracing::warn!(code = alarm.code, step = alarm.step, detail = alarm.detail, "alarm");
            self.send(Report::Alarm(alarm));
        }
        grave
    }

    /// What rank 0 was told, so that all processes stop at the same step.
    fn stop(&self) -> Result<Option<Stop>, TrainError> {
        let own = if self.group.rank() > 0 {
            None
        } else if self.plan.reports.is_closed() {
            // Nobody writes down what this attempt does any more.
            Some(Stop::LeaseLost)
        } else {
            (self.plan.stop)()
        };
        if self.group.world() == 1 {
            return Ok(own);
        }
        let mut told = [own.map_or(0.0, |stop| f64::from(stop as u8) + 1.0)];
        self.group.sum(&mut told)?;
        Ok(Stop::ALL.into_iter().find(|stop| (told[0] - f64::from(*stop as u8) - 1.0).abs() < 0.5))
    }

    fn checkpoint_dir(&self, step: u32) -> PathBuf {
        self.plan.scratch.join(format!("{step:06}"))
    }

    /// Writes a checkpoint and waits until it is stored and listed.
    fn checkpoint(&self) -> Result<(), TrainError> {
        if self.group.rank() > 0 {
            return Ok(());
        }
        let step = self.state.step;
        let dir = self.checkpoint_dir(step);
        checkpointing::save(&dir, &self.lm, &self.optim, &self.state, &self.last)?;
        let (stored, answer) = oneshot::channel();
        self.send(Report::Checkpoint { step, dir, last: step == self.state.max_steps, stored });
        // An answer that never comes means that the service has given up on this attempt; the next stop check sees it.
        answer.blocking_recv().map_err(|_| JobError::Stopped(Stop::LeaseLost).into())
    }

    /// A process that goes down and a run that is paused keep the steps done; a cancelled or lost job needs nothing kept.
    fn stopped(&self, stop: Stop, saved: Option<u32>) -> Result<TrainError, TrainError> {
        let keeps = matches!(stop, Stop::Draining | Stop::Paused);
        if keeps && self.state.step > 0 && saved != Some(self.state.step) {
            self.checkpoint()?;
        }
        Ok(JobError::Stopped(stop).into())
    }

    /// Sends numbers and remembers them for the next checkpoint.
    fn tell(&mut self, points: Points) {
        let points = points.take();
        if let Some(prefix) = points.first().and_then(|p| p.name.split_once('/')).map(|(prefix, _)| prefix) {
            self.last.retain(|p| !p.name.starts_with(prefix));
        }
        self.last.extend(points.iter().cloned());
        self.send(Report::Metrics(points));
    }

    fn send(&self, report: Report) {
        if self.group.rank() == 0 {
            // The receiver is gone only when the attempt is over; the stop check ends the loop.
            let _gone = self.plan.reports.blocking_send(report);
        }
    }
}
