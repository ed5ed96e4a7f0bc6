//! The stages of the demo, each a few calls of the API.

use serde_json::json;

use client::chat::{ChatOptions, InjectAt, Pace};
use client::views::{DatasetView, EvaluationView, ModelView, NewSession};
use client::{ClientError, Result};
use domain::dataset::DatasetSpec;
use domain::preflight::Acknowledge;
use domain::session::{ContextWhen, SamplingParams, SessionPace};

use super::super::evaluate::fetch_reports;
use super::super::session::{report, talk, write};
use super::super::{model, progress};
use super::{Demo, sample};

const MODEL: &str = "tiny";
/// Frames of the live session: 8 s.
const SESSION_FRAMES: usize = 75;
/// Context goes in a second and a half into the session.
const CONTEXT_FRAME: u64 = 19;
const CONTEXT_CHARACTERS: usize = 60;

impl Demo<'_> {
    /// The base model, made and registered on the first run.
    pub(super) async fn model(&mut self) -> Result<ModelView> {
        match self.client.model(MODEL).await {
            Err(ClientError::Problem(problem)) if problem.status == 404 => {}
            found => {
                let found = found?;
                self.say(&format!("      {} is registered already", found.id));
                return Ok(found);
            }
        }
        let dir = self.args.import_dir.join(MODEL);
        let made = tokio::task::spawn_blocking(move || {
            if dir.exists() { weights::verify(&dir) } else { weights::init_model(&dir, MODEL, 0) }
        });
        let info = made.await.map_err(|e| ClientError::Usage(format!("cannot make the model: {e}")))?;
        let info = info.map_err(|e| model::bad_model(&e))?;
        let view = self.client.register_model(MODEL, MODEL).await?;
        self.say(&format!(
            "      {} parameters, registered as {}",
            info.lm_parameters + info.mimi_parameters,
            view.id
        ));
        Ok(view)
    }

    /// A fresh dataset.
    pub(super) async fn dataset(&mut self) -> Result<DatasetView> {
        let spec = DatasetSpec {
            domain: "pharma_adherence".into(),
            dialogues: self.args.dialogues,
            seed: 0,
            shard_size: 4,
            eval_fraction: 0.2,
            ..DatasetSpec::default()
        };
        let dataset = self.client.create_dataset(&format!("demo-{}", self.stamp), &spec).await?;
        self.say(&format!("      {} ({} dialogues of {})", dataset.id, spec.dialogues, spec.domain));
        let dataset = progress::dataset(self.context, &dataset, &self.wait()).await?;
        let Some(summary) = &dataset.summary else {
            return Err(ClientError::Usage(format!("{} is published without a summary", dataset.id)));
        };
        self.say(&format!(
            "      {} for training, {} held out, {} left out; {:.0} s of speech, {} timed words, {} injections",
            summary.train_dialogues,
            summary.eval_dialogues,
            summary.rejected_dialogues,
            summary.audio_s,
            summary.words,
            summary.injections
        ));
        Ok(dataset)
    }

    /// A short training; the merged model.
    pub(super) async fn training(&mut self, dataset: &DatasetView, base: &ModelView) -> Result<ModelView> {
        let spec = json!({
            "max_steps": self.args.steps, "batch_size": 2, "num_microbatches": 1, "duration_sec": 64.0, "eval_freq": 0, "ckpt_freq": 0,
            "optim": { "lr": 2e-3 }, "lora": { "rank": 8 },
            // Memory is no concern here, time is.
            "gradient_checkpointing": false, "probe": { "prompts": 2, "seconds": 4.0 },
        });
        let name = format!("demo-{}", self.stamp);
        // A learning rate for random weights, few steps and little data are what a demonstration is.
        let accept = Acknowledge::All(true);
        let run = self.client.create_run(&name, dataset.id, &base.id.to_string(), &spec, &accept).await?;
        self.say(&format!("      {} ({} steps)", run.id, self.args.steps));
        let run = progress::training(self.context, &run, &self.wait()).await?;
        self.facts.training = run.summary.clone().unwrap_or_default();
        let id = run
            .model_id
            .ok_or_else(|| ClientError::Usage(format!("{} ended without a merged model", run.id)))?;
        let model = self.client.model_by_id(id).await?;
        self.say(&format!("      merged model {} ({})", model.name, model.id));
        Ok(model)
    }

    /// A live session in real time with one injection.
    pub(super) async fn session(&mut self, dataset: &DatasetView, model: &ModelView) -> Result<()> {
        let sample = sample::first(&self.client, dataset, SESSION_FRAMES).await?;
        let text = sample.context.as_deref().unwrap_or("Mention that the refill is ready for pick-up.");
        let text = sample::shortened(text, CONTEXT_CHARACTERS);
        self.say(&format!(
            "      user voice of {}, {:.0} s in real time; context: {text:?}",
            sample.name,
            sample.user.len() as f64 / 24_000.0
        ));
        let new = NewSession {
            model: model.id.to_string(),
            voice: sample.voice,
            text_prompt: Some(sample.text_prompt),
            sampling: Some(SamplingParams { seed: Some(0), ..SamplingParams::default() }),
            pace: SessionPace::Realtime,
        };
        let injection =
            InjectAt { frame: CONTEXT_FRAME, text, when: Some(ContextWhen::Immediate), deadline_ms: None };
        let options =
            ChatOptions { injections: vec![injection], pace: Pace::RealTime, ..ChatOptions::default() };
        let talked = talk(&self.client, &new, sample.user, &options).await?;
        let wav = self.args.out.join("session.wav");
        write(&self.args.out.join("session.json"), format!("{:#}\n", report(&talked)).as_bytes())?;
        audio::wav::write_pcm16(&wav, &talked.conversation.stereo())?;
        self.say(&format!("      {} (left agent, right user)", wav.display()));
        self.facts.hear(&talked.conversation);
        Ok(())
    }

    /// Both models on the held-out dialogues; (base, tuned).
    pub(super) async fn evaluations(
        &mut self,
        dataset: &DatasetView,
        base: &ModelView,
        tuned: &ModelView,
    ) -> Result<(EvaluationView, EvaluationView)> {
        let spec = json!({ "max_dialogues": 2, "max_seconds": 12.0, "seed": 0 });
        let mut pair = Vec::new();
        for (side, model) in [("base", base), ("tuned", tuned)] {
            let name = format!("demo-{}-{side}", self.stamp);
            pair.push(self.client.create_evaluation(&name, dataset.id, &model.id.to_string(), &spec).await?);
        }
        for evaluation in &mut pair {
            progress::job(self.context, evaluation.job_id, "evaluation", &self.wait()).await?;
            *evaluation = self.client.evaluation(evaluation.id).await?;
            self.say(&format!("      {} ({})", evaluation.name, evaluation.id));
        }
        let (Some(tuned), Some(base)) = (pair.pop(), pair.pop()) else {
            return Err(ClientError::Usage("two evaluations were asked for".into()));
        };
        self.facts.evaluations =
            [base.summary.clone().unwrap_or_default(), tuned.summary.clone().unwrap_or_default()];
        Ok((base, tuned))
    }

    /// The comparison and its report.
    pub(super) async fn comparison(&mut self, pair: &(EvaluationView, EvaluationView)) -> Result<()> {
        let name = format!("demo-{}", self.stamp);
        let comparison = self.client.create_comparison(&name, pair.0.id, pair.1.id).await?;
        progress::job(self.context, comparison.job_id, "comparison", &self.wait()).await?;
        let comparison = self.client.comparison(comparison.id).await?;
        let html = fetch_reports(&self.client, &comparison, &self.args.out).await?;
        self.say(&format!("      {} ({})", html.display(), comparison.id));
        self.facts.report = html.display().to_string();
        Ok(())
    }
}
