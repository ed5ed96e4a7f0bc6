//! Trainings.

mod checkpoints;
mod control;
mod export;
mod start;

use actix_web::{HttpRequest, HttpResponse, get};
use chrono::{DateTime, Utc};
use domain::job::{JobKind, JobState};
use domain::run::TrainingSpec;
use domain::{DatasetId, JobId, ModelId, RunId};
use rest::{Asked, Id, List, PageQuery, Problem};
use serde::Serialize;
use store::StoreError;
use store::jobs;
use store::runs::Run;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::{Shared, State};

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(start::create_run)
        .service(list_runs)
        .service(get_run)
        .service(control::cancel_run)
        .service(control::pause_run)
        .service(control::resume_run)
        .service(export::list_run_metrics)
        .service(export::get_run_loss_curve)
        .service(checkpoints::list_run_checkpoints)
        .service(checkpoints::export_run_adapter);
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
