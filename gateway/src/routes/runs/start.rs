//! What happens before a run: it is checked, and starts only when nothing stands against it.

use actix_web::{HttpResponse, post};
use domain::job::{JobSpec, JobState};
use domain::preflight::{Acknowledge, Finding, Preflight};
use domain::run::TrainingSpec;
use domain::{CheckpointId, DatasetId, ErrorCode, RunId};
use rest::once::Created;
use rest::problem::FieldError;
use rest::{Asked, Posted, Problem, Trace};
use serde::Deserialize;
use store::datasets::Dataset;
use store::models::Model;
use store::{Tx, jobs};
use utoipa::{IntoParams, ToSchema};

use super::RunView;
use crate::routes::{models, new_job};
use crate::state::{Shared, State};
use rest::names;

/// Request to train.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "insurance-r1", "dataset_id": "ds_01938f6e0c3b7a54b1f2a0c4d5e6f708", "base_model": "tiny",
    "spec": {"max_steps": 40, "batch_size": 2, "duration_sec": 20.0, "optim": {"lr": 0.001}, "lora": {"rank": 8}},
    "acknowledge": ["lr_high", "warm_up_short", "data_small"]
}))]
pub struct CreateRun {
    /// Unique; the merged model gets it too.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// A published dataset.
    dataset_id: DatasetId,
    /// Id or name of the model to start from.
    base_model: String,
    /// How to train; fields left out have their defaults.
    spec: Option<TrainingSpec>,
    /// Warnings of the check that are accepted: `true` for all, or their codes. Errors cannot be accepted.
    acknowledge: Option<Acknowledge>,
}

/// Whether to start.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StartQuery {
    /// Only check, and answer with everything that was found.
    dry_run: Option<bool>,
}

/// Start a run.
///
/// Checks specification, data, base, memory and disk first: a run with an error does not start, and one with a warning only
/// when the request acknowledges it. Then it trains adapters, saves checkpoints, and registers the merged model under the
/// run's name. With `dry_run=true` nothing is made: the answer is the check.
#[utoipa::path(operation_id = "createRun", tag = "runs", params(StartQuery), request_body = CreateRun,
    responses(
        (status = 200, description = "What the check found; nothing was made.", body = Preflight),
        (status = 201, description = "The run is queued.", body = RunView)
    ),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs")]
pub(super) async fn create_run(
    state: Shared,
    trace: Trace,
    query: Asked<StartQuery>,
    posted: Posted<CreateRun>,
) -> Result<HttpResponse, Problem> {
    if query.0.dry_run == Some(true) {
        let asked = Asking::read(&state, posted.body).await?;
        return Ok(HttpResponse::Ok().json(asked.check(&state).await?));
    }
    let prepare = async |body: CreateRun| {
        let faults = body.spec.as_ref().map(TrainingSpec::faults).unwrap_or_default();
        names::check(&body.name, names::below("/spec", faults))?;
        let asked = Asking::read(&state, body).await?;
        models::name_is_free(&state.store, &asked.name).await?;
        allow(&asked.check(&state).await?, &asked.acknowledge)?;
        Ok((asked.name, asked.dataset.id, asked.base.id, asked.spec))
    };
    let write = async |tx: &mut Tx, (name, dataset_id, base_model_id, spec): (String, _, _, TrainingSpec)| {
        let id = RunId::generate();
        store::runs::insert(tx, id, &name, dataset_id, base_model_id, &spec).await?;
        let job = new_job(&state, &trace, JobSpec::Train { run_id: id });
        jobs::enqueue(tx, &job).await?;
        let view = RunView {
            id,
            object: "run",
            name,
            dataset_id,
            base_model_id,
            spec,
            state: JobState::Queued,
            job_id: Some(job.id),
            model_id: None,
            summary: None,
            created_at: store::transaction_time(tx).await?,
        };
        Ok(Created { location: format!("/v1/runs/{id}"), view })
    };
    posted.once(&state.store, &[], prepare, write).await
}

/// A request whose dataset and base exist.
struct Asking {
    name: String,
    dataset: Dataset,
    base: Model,
    spec: TrainingSpec,
    /// Specification and step of the checkpoint to go on from.
    earlier: Option<(TrainingSpec, u32)>,
    acknowledge: Acknowledge,
}

impl Asking {
    async fn read(state: &State, body: CreateRun) -> Result<Self, Problem> {
        names::check(&body.name, Vec::new())?;
        let dataset = store::datasets::get(&state.store, body.dataset_id).await;
        let dataset = names::published("/dataset_id", dataset)?;
        let base =
            names::reference("/base_model", store::models::find(&state.store, &body.base_model).await)?;
        let (spec, acknowledge) = (body.spec.unwrap_or_default(), body.acknowledge.unwrap_or_default());
        let earlier = match spec.resume_from {
            Some(id) => Some(earlier(state, id, &base).await?),
            None => None,
        };
        Ok(Self { name: body.name, dataset, base, spec, earlier, acknowledge })
    }

    /// Reads files on a thread of its own.
    async fn check(&self, state: &State) -> Result<Preflight, Problem> {
        let published =
            state.artifacts.local_path(&format!("{}/published", Dataset::prefix(self.dataset.id)))?;
        let base = state.artifacts.local_path(&self.base.prefix)?;
        let content = self.dataset.summary.as_ref().map(|s| s.content_sha256.clone());
        let (name, spec, files) = (self.name.clone(), self.spec.clone(), self.base.files.clone());
        let earlier = self.earlier.clone();
        let work = tokio::task::spawn_blocking(move || {
            preflight::examine(&preflight::Inputs {
                name: &name,
                spec: &spec,
                earlier: earlier.as_ref().map(|(spec, step)| (spec, *step)),
                published: &published,
                content_sha256: content.as_deref(),
                base: &base,
                base_files: &files,
                storage: &base,
                devices: &preflight::memory::DEVICES,
            })
        });
        work.await.map_err(Problem::internal)
    }
}

/// The checkpoint must exist and be of the same base.
async fn earlier(state: &State, id: CheckpointId, base: &Model) -> Result<(TrainingSpec, u32), Problem> {
    let pointer = "/spec/resume_from";
    let checkpoint = names::reference(pointer, store::runs::checkpoint(&state.store, id).await)?;
    let run = store::runs::get(&state.store, checkpoint.run_id).await?;
    if run.base_id != base.id {
        let detail =
            format!("the checkpoint was trained on base {}, this run starts from {}", run.base_id, base.id);
        return Err(Problem::field(pointer, detail));
    }
    Ok((run.spec, checkpoint.step))
}

fn allow(report: &Preflight, acknowledge: &Acknowledge) -> Result<(), Problem> {
    let found: Vec<&Finding> = report.obstacles(acknowledge).collect();
    if found.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = found.iter().map(|f| format!("{}: {}", f.code, f.detail)).collect();
    let errors = found
        .iter()
        .map(|f| FieldError { pointer: f.pointer.clone(), code: f.code.clone(), detail: f.detail.clone() })
        .collect();
    let hint = if report.passed { "; set acknowledge to accept warnings" } else { "" };
    Err(Problem::listing(ErrorCode::PreflightFailed, format!("{}{hint}", told.join("; ")), errors))
}
