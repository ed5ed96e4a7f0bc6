//! The `train` job: rows and files in, reports to Postgres while it runs, a merged model out.

use chassis::{Completion, JobContext, JobError, JobHandler, async_trait};
use domain::dataset::DatasetFile;
use domain::job::{JobKind, JobSpec};
use domain::run::MetricPoint;
use domain::{ErrorCode, ModelId, RunId};
use serde_json::json;
use store::models::{Model, NewModel};
use store::runs::Run;
use store::{datasets, metrics, models, runs};
use tokio::sync::mpsc;

use crate::checkpointing::{self, StateFacts};
use crate::loader::read_dataset;
use crate::train::model_sha256;
use crate::{Outcome, Plan, Report, TrainError, train};

/// Does `train` jobs on one device.
#[derive(Debug)]
pub struct TrainHandler {
    /// Where to compute.
    pub device: tch::Device,
    /// Whether a base whose codec does not give the configured prompt codes is refused.
    pub strict_constants: bool,
}

#[async_trait]
impl JobHandler for TrainHandler {
    fn kind(&self) -> JobKind {
        JobKind::Train
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Train { run_id } = spec else {
            return Err(JobError::permanent(ErrorCode::Internal, "not a train job"));
        };
        let run = runs::get(&ctx.store, run_id).await?;
        let base = models::get(&ctx.store, run.base_id).await?;
        let scratch = tempfile::tempdir().map_err(|e| JobError::transient(ErrorCode::Unavailable, e))?;
        let (reports, inbox) = mpsc::channel(64);
        let plan = self.plan(ctx, &run, &base, scratch.path(), reports).await?;
        let started = std::time::Instant::now();
        let work = tokio::task::spawn_blocking(move || train(&plan));
        let relayed = relay(ctx, &run, inbox).await;
        let outcome = work
            .await
            .map_err(|e| JobError::permanent(ErrorCode::Internal, format!("training thread: {e}")))?;
        // A failure to write reports is the cause of what the thread then says.
        relayed?;
        let outcome = outcome?;
        let merged = merge(ctx, &run, &base, &outcome).await?;
        let summary = summary(ctx, &run, &outcome, started.elapsed().as_secs_f64()).await?;
        Ok(Completion::Trained { run: run_id, summary, merged })
    }
}

impl TrainHandler {
    async fn plan(
        &self,
        ctx: &JobContext,
        run: &Run,
        base: &Model,
        scratch: &std::path::Path,
        reports: mpsc::Sender<Report>,
    ) -> Result<Plan, JobError> {
        let dataset = datasets::get(&ctx.store, run.dataset_id).await?;
        let Some(facts) = dataset.summary else {
            let detail = format!("dataset {} is not published", dataset.name);
            return Err(JobError::permanent(ErrorCode::InvalidDataset, detail));
        };
        let published = format!("{}/published", datasets::Dataset::prefix(dataset.id));
        let signals = ctx.clone();
        Ok(Plan {
            spec: run.spec.clone(),
            facts: StateFacts::new(run.id, &run.spec, 0),
            base: ctx.artifacts.local_path(&base.prefix)?,
            base_sha256: model_sha256(&base.files),
            dataset_sha256: facts.content_sha256,
            data: read_dataset(&ctx.artifacts, &published).await?,
            resume: resume_from(ctx, run.id).await?,
            scratch: scratch.into(),
            device: self.device,
            strict_constants: self.strict_constants,
            stop: Box::new(move || signals.stop()),
            reports,
        })
    }
}

/// Folder of the newest whole checkpoint.
async fn resume_from(ctx: &JobContext, run: RunId) -> Result<Option<std::path::PathBuf>, JobError> {
    for checkpoint in runs::checkpoints(&ctx.store, run).await?.iter().rev() {
        if checkpointing::is_whole(&ctx.artifacts, checkpoint).await {
            tracing::info!(run.id = %run, step = checkpoint.step, "going on from a checkpoint");
            return Ok(Some(ctx.artifacts.local_path(&checkpoint.prefix)?));
        }
    }
    Ok(None)
}

/// Writes reports until the training thread ends. On an error the inbox is dropped, which the thread notices.
async fn relay(ctx: &JobContext, run: &Run, mut inbox: mpsc::Receiver<Report>) -> Result<(), JobError> {
    while let Some(report) = inbox.recv().await {
        match report {
            Report::Metrics(points) => note(ctx, run, &points, None).await?,
            Report::Progress(done, total) => note(ctx, run, &[], Some((done, total))).await?,
            Report::Checkpoint { step, dir, stored } => {
                let prefix =
                    format!("{}-{step:06}", ctx.attempt_prefix(&format!("runs/{}/checkpoints", run.id)));
                let files = checkpointing::store_dir(&ctx.artifacts, &dir, &prefix).await?;
                runs::add_checkpoint(&ctx.store, ctx.claim, run.id, step, &prefix, &files).await?;
                prune(ctx, run).await?;
                if step != run.spec.max_steps {
                    // Stored; only the last one is still needed, for the merge.
                    let _gone = tokio::fs::remove_dir_all(&dir).await;
                }
                let _gone = stored.send(());
            }
        }
    }
    Ok(())
}

/// Writes numbers or progress, again while the database is away: hours of training are not lost to a restart of it.
async fn note(
    ctx: &JobContext,
    run: &Run,
    points: &[MetricPoint],
    progress: Option<(u32, u32)>,
) -> Result<(), JobError> {
    loop {
        let written = match progress {
            Some((done, total)) => ctx.progress(done.into(), total.into(), "steps").await,
            None => metrics::record(&ctx.store, ctx.claim, run.id, points).await.map_err(JobError::from),
        };
        match written {
            Err(JobError::Transient(code, detail)) if ctx.stop().is_none() => {
                tracing::warn!(%code, detail, "cannot report yet");
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            written => return written,
        }
    }
}

/// Keeps the newest checkpoints; a row goes before its files.
async fn prune(ctx: &JobContext, run: &Run) -> Result<(), JobError> {
    let all = runs::checkpoints(&ctx.store, run.id).await?;
    let surplus = all.len().saturating_sub(run.spec.num_ckpt_keep as usize);
    for old in all.iter().take(surplus) {
        runs::remove_checkpoint(&ctx.store, ctx.claim, old.id).await?;
        ctx.artifacts.delete_prefix(&old.prefix).await?;
    }
    Ok(())
}

/// Base and last adapter become a model of their own.
async fn merge(ctx: &JobContext, run: &Run, base: &Model, outcome: &Outcome) -> Result<NewModel, JobError> {
    let scratch = tempfile::tempdir().map_err(|e| JobError::transient(ErrorCode::Unavailable, e))?;
    let out = scratch.path().join("merged");
    let (base_dir, adapter_dir, target) =
        (ctx.artifacts.local_path(&base.prefix)?, outcome.adapter_dir.clone(), out.clone());
    let merged = tokio::task::spawn_blocking(move || -> Result<_, TrainError> {
        let report = weights::lora::merge_model(&base_dir, &adapter_dir, &target)?;
        weights::verify(&target)?;
        Ok(report)
    });
    let report = merged
        .await
        .map_err(|e| JobError::permanent(ErrorCode::Internal, format!("merge thread: {e}")))??;
    let (worst_error, unchanged) = (report.worst_error, report.unchanged);
    tracing::info!(run.id = %run.id, merged = report.merged, worst_error, unchanged, "merged");
    ctx.check()?;
    let id = ModelId::generate();
    let prefix = format!("models/{id}");
    let files: Vec<DatasetFile> = checkpointing::store_dir(&ctx.artifacts, &out, &prefix).await?;
    let (base_id, run_id) = (Some(base.id), Some(run.id));
    Ok(NewModel { id, name: run.name.clone(), kind: "merged", prefix, files, base_id, run_id })
}

/// Loss first and last are means over up to five steps at either end: single batches are noisy.
async fn summary(
    ctx: &JobContext,
    run: &Run,
    outcome: &Outcome,
    wall_s: f64,
) -> Result<serde_json::Value, JobError> {
    let points = metrics::of_run(&ctx.store, run.id, None).await?;
    let series = |name: &str| points.iter().filter(|p| p.name == name).collect::<Vec<&MetricPoint>>();
    #[expect(clippy::cast_precision_loss, reason = "at most five")]
    let mean = |part: &[&MetricPoint]| {
        (!part.is_empty()).then(|| part.iter().map(|p| p.value).sum::<f64>() / part.len() as f64)
    };
    let (loss, eval) = (series("train/loss"), series("eval/loss"));
    let tail = loss.len().saturating_sub(5);
    Ok(json!({
        "steps": run.spec.max_steps,
        "loss_first": mean(loss.get(..loss.len().min(5)).unwrap_or_default()),
        "loss_last": mean(loss.get(tail..).unwrap_or_default()),
        "eval_loss_first": eval.first().map(|p| p.value),
        "eval_loss_last": eval.last().map(|p| p.value),
        "frames_per_s": outcome.frames_per_s,
        "wall_s": wall_s,
        "trainable_parameters": outcome.parameters,
        "windows_train": outcome.windows.0,
        "windows_eval": outcome.windows.1,
    }))
}
