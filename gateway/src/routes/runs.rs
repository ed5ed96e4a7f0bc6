//! Trainings.

use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::dataset::DatasetFile;
use domain::job::{JobKind, JobSpec, JobState};
use domain::run::{MetricPoint, TrainingSpec};
use domain::{CheckpointId, DatasetId, JobId, ModelId, RunId};
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use store::jobs;
use store::runs::Run;
use store::{StoreError, Tx};
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use super::{names, new_job};
use crate::state::{Shared, State};

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(create_run)
        .service(list_runs)
        .service(get_run)
        .service(cancel_run)
        .service(list_run_metrics)
        .service(list_run_checkpoints);
}

/// Request to train.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "insurance-r1", "dataset_id": "ds_01938f6e0c3b7a54b1f2a0c4d5e6f708", "base_model": "tiny",
    "spec": {"max_steps": 40, "batch_size": 2, "duration_sec": 20.0, "optim": {"lr": 0.001}, "lora": {"rank": 8}}
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
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunView {
    id: RunId,
    /// Always `run`.
    #[schema(example = "run")]
    object: &'static str,
    #[schema(example = "insurance-r1")]
    name: String,
    dataset_id: DatasetId,
    base_model_id: ModelId,
    spec: TrainingSpec,
    state: JobState,
    job_id: Option<JobId>,
    /// The merged model, once there is one.
    model_id: Option<ModelId>,
    /// What came out.
    #[schema(value_type = Option<Object>)]
    summary: Option<serde_json::Value>,
    created_at: DateTime<Utc>,
}

async fn view(state: &State, run: Run) -> Result<RunView, Problem> {
    let job = match jobs::for_subject(&state.store, &run.id.to_string(), JobKind::Train).await {
        Ok(job) => Some(job),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let model = store::models::of_run(&state.store, run.id).await?;
    Ok(RunView {
        id: run.id,
        object: "run",
        name: run.name,
        dataset_id: run.dataset_id,
        base_model_id: run.base_id,
        spec: run.spec,
        state: job.as_ref().map_or(JobState::Queued, |j| j.state),
        job_id: job.map(|j| j.id),
        model_id: model.map(|m| m.id),
        summary: run.summary,
        created_at: run.created_at,
    })
}

/// Start a run.
///
/// Trains adapters on a published dataset, saves checkpoints, and registers the merged model under the run's name.
#[utoipa::path(operation_id = "createRun", tag = "runs", request_body = CreateRun,
    responses((status = 201, description = "The run is queued.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs")]
async fn create_run(state: Shared, trace: Trace, posted: Posted<CreateRun>) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateRun| {
        let spec = body.spec.unwrap_or_default();
        names::check(&body.name, names::below("/spec", spec.faults()))?;
        let dataset = store::datasets::get(&state.store, body.dataset_id).await;
        let dataset = names::published("/dataset_id", dataset)?;
        let base =
            names::reference("/base_model", store::models::find(&state.store, &body.base_model).await)?;
        super::models::name_is_free(&state.store, &body.name).await?;
        Ok((body.name, dataset.id, base.id, spec))
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

/// List runs.
#[utoipa::path(operation_id = "listRuns", tag = "runs", params(PageQuery),
    responses((status = 200, description = "A page of runs.", body = List<RunView>)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs")]
async fn list_runs(state: Shared, req: HttpRequest, page: Asked<PageQuery>) -> Result<HttpResponse, Problem> {
    let page = store::runs::list(&state.store, page.0.request(RunId::uuid)?).await?;
    let mut views = Vec::with_capacity(page.items.len());
    for run in page.items {
        views.push(view(&state, run).await?);
    }
    Ok(List::page(views, |v| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a run.
#[utoipa::path(operation_id = "getRun", tag = "runs", params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}")]
async fn get_run(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok().json(view(&state, run).await?))
}

/// Cancel a run.
///
/// The trainer stops after its current step. A run that is over stays as it is.
#[utoipa::path(operation_id = "cancelRun", tag = "runs", params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs/{id}/cancel")]
async fn cancel_run(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    let job = jobs::for_subject(&state.store, &run.id.to_string(), JobKind::Train).await?;
    jobs::cancel(&state.store, job.id).await?;
    Ok(HttpResponse::Ok().json(view(&state, run).await?))
}

/// Which metric.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MetricsQuery {
    /// Only this metric.
    #[param(example = "train/loss")]
    name: Option<String>,
}

/// List the metrics of a run.
#[utoipa::path(operation_id = "listRunMetrics", tag = "runs",
    params(("id" = RunId, Path, description = "The run."), MetricsQuery),
    responses((status = 200, description = "All points so far, by step.", body = List<MetricPoint>)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/metrics")]
async fn list_run_metrics(
    state: Shared,
    id: Id<RunId>,
    query: Asked<MetricsQuery>,
) -> Result<HttpResponse, Problem> {
    store::runs::get(&state.store, id.0).await?;
    let name = query.0.name.filter(|n| !n.contains('\0'));
    let points = store::metrics::of_run(&state.store, id.0, name.as_deref()).await?;
    Ok(HttpResponse::Ok().json(List::whole(points)))
}

/// A saved adapter.
#[derive(Debug, Serialize, ToSchema)]
pub struct CheckpointView {
    id: CheckpointId,
    /// Always `checkpoint`.
    #[schema(example = "checkpoint")]
    object: &'static str,
    run_id: RunId,
    /// Optimizer update.
    step: u32,
    files: Vec<DatasetFile>,
    created_at: DateTime<Utc>,
}

/// List the checkpoints of a run.
#[utoipa::path(operation_id = "listRunCheckpoints", tag = "runs",
    params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The checkpoints kept, by step.", body = List<CheckpointView>)),
    extensions(("x-required-scope" = json!("runs:read"))))]
#[get("/v1/runs/{id}/checkpoints")]
async fn list_run_checkpoints(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    store::runs::get(&state.store, id.0).await?;
    let views = store::runs::checkpoints(&state.store, id.0)
        .await?
        .into_iter()
        .map(|c| CheckpointView {
            id: c.id,
            object: "checkpoint",
            run_id: c.run_id,
            step: c.step,
            files: c.files,
            created_at: c.created_at,
        })
        .collect();
    Ok(HttpResponse::Ok().json(List::whole(views)))
}
