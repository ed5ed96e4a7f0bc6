//! The `train` job: rows and files in, reports to Postgres while it runs, a merged model out.

use chassis::{Completion, JobContext, JobError, JobHandler, async_trait};
use domain::job::{JobKind, JobSpec};
use domain::{ErrorCode, ModelId};
use store::models::{Model, NewModel};
use store::runs::Run;
use store::{datasets, models, runs};
use tokio::sync::mpsc;

use crate::crew::Crew;
use crate::dataset::read_dataset;
use crate::plan::{Plan, Resume, Take, model_sha256};
use crate::relay::relay;
use crate::storing::{is_whole, store_dir};
use crate::summary::summary;
use crate::{Outcome, Report, TrainError, checkpointing, export};

/// Does `train` jobs.
#[derive(Debug)]
pub struct TrainHandler {
    /// What to compute with.
    pub crew: Crew,
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
        let crew = self.crew.clone();
        let work = tokio::task::spawn_blocking(move || crew.train(&plan));
        let relayed = relay(ctx, &run, inbox).await;
        let outcome = work
            .await
            .map_err(|e| JobError::permanent(ErrorCode::Internal, format!("training thread: {e}")))?;
        // A failure to write reports is the cause of what the thread then says.
        relayed?;
        // Whatever came of the attempt, its numbers are there.
        export::write_logs(&ctx.store, &ctx.artifacts, run.id).await?;
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
            run: run.id,
            base: ctx.artifacts.local_path(&base.prefix)?,
            base_sha256: model_sha256(&base.files),
            dataset_sha256: facts.content_sha256,
            data: read_dataset(&ctx.artifacts, &published).await?,
            resume: resume(ctx, run).await?,
            scratch: scratch.into(),
            codes: Some(ctx.artifacts.local_path("cache/codes")?),
            device: self.crew.devices[0],
            strict_constants: self.strict_constants,
            stop: Box::new(move || signals.stop()),
            reports,
        })
    }
}

/// The newest whole checkpoint of the run itself, else the one that its specification names.
async fn resume(ctx: &JobContext, run: &Run) -> Result<Option<Resume>, JobError> {
    for checkpoint in runs::checkpoints(&ctx.store, run.id).await?.iter().rev() {
        if is_whole(&ctx.artifacts, checkpoint).await {
            tracing::info!(run.id = %run.id, step = checkpoint.step, "going on from a checkpoint");
            let dir = ctx.artifacts.local_path(&checkpoint.prefix)?;
            return Ok(Some(Resume { dir, take: Take::Own }));
        }
    }
    let Some(id) = run.spec.resume_from else { return Ok(None) };
    let checkpoint = runs::checkpoint(&ctx.store, id).await?;
    if !is_whole(&ctx.artifacts, &checkpoint).await {
        let detail = format!("checkpoint {id} (resume_from) is damaged");
        return Err(JobError::permanent(ErrorCode::ArtifactDamaged, detail));
    }
    let take = if run.spec.force_warm_restart { Take::Weights } else { Take::Other };
    tracing::info!(run.id = %run.id, from = %checkpoint.run_id, step = checkpoint.step, ?take, "starting from a checkpoint");
    Ok(Some(Resume { dir: ctx.artifacts.local_path(&checkpoint.prefix)?, take }))
}

/// Base and last adapter, or the last whole checkpoint, become a model of their own.
async fn merge(ctx: &JobContext, run: &Run, base: &Model, outcome: &Outcome) -> Result<NewModel, JobError> {
    let scratch = tempfile::tempdir().map_err(|e| JobError::transient(ErrorCode::Unavailable, e))?;
    let out = scratch.path().join("merged");
    let (base_dir, adapter_dir, target) =
        (ctx.artifacts.local_path(&base.prefix)?, outcome.adapter_dir.clone(), out.clone());
    let is_whole = run.spec.full_finetuning;
    let merged = tokio::task::spawn_blocking(move || -> Result<(), TrainError> {
        if is_whole {
            weights::lora::export_whole(&base_dir, &adapter_dir.join(checkpointing::WHOLE), &target)?;
        } else {
            let report = weights::lora::merge_model(&base_dir, &adapter_dir, &target)?;
            let (worst_error, unchanged) = (report.worst_error, report.unchanged);
            tracing::info!(merged = report.merged, worst_error, unchanged, "merged");
        }
        Ok(weights::verify(&target).map(drop)?)
    });
    merged.await.map_err(|e| JobError::permanent(ErrorCode::Internal, format!("merge thread: {e}")))??;
    ctx.check()?;
    let id = ModelId::generate();
    let prefix = format!("models/{id}");
    let files = store_dir(&ctx.artifacts, &out, &prefix).await?;
    let (base_id, run_id) = (Some(base.id), Some(run.id));
    Ok(NewModel { id, name: run.name.clone(), kind: "merged", prefix, files, base_id, run_id })
}
