//! Stopping a run, for good or for a while.

use actix_web::{HttpResponse, post};
use domain::RunId;
use domain::job::JobKind;
use rest::{Id, Problem};
use store::{jobs, pauses};

use super::{RunView, view};
use crate::state::Shared;

/// Cancel a run.
///
/// The trainer stops after its current step. A run that is over stays as it is.
#[utoipa::path(operation_id = "cancelRun", tag = "runs", params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs/{id}/cancel")]
pub(super) async fn cancel_run(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    let job = jobs::for_subject(&state.store, &run.id.to_string(), JobKind::Train).await?;
    jobs::cancel(&state.store, job.id).await?;
    Ok(HttpResponse::Ok().json(view(&state, run).await?))
}

/// Pause a run.
///
/// The trainer saves after its current step and gives its device free; the run is then `paused` until it is resumed. A
/// waiting run is paused at once; one that is over stays as it is.
#[utoipa::path(operation_id = "pauseRun", tag = "runs", params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs/{id}/pause")]
pub(super) async fn pause_run(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    let job = jobs::for_subject(&state.store, &run.id.to_string(), JobKind::Train).await?;
    pauses::pause(&state.store, job.id).await?;
    Ok(HttpResponse::Ok().json(view(&state, run).await?))
}

/// Resume a paused run.
///
/// It goes on from its last step, with the same numbers as if it had never paused. Any other run stays as it is.
#[utoipa::path(operation_id = "resumeRun", tag = "runs", params(("id" = RunId, Path, description = "The run.")),
    responses((status = 200, description = "The run as it is now.", body = RunView)),
    extensions(("x-required-scope" = json!("runs:write"))))]
#[post("/v1/runs/{id}/resume")]
pub(super) async fn resume_run(state: Shared, id: Id<RunId>) -> Result<HttpResponse, Problem> {
    let run = store::runs::get(&state.store, id.0).await?;
    let job = jobs::for_subject(&state.store, &run.id.to_string(), JobKind::Train).await?;
    pauses::resume(&state.store, job.id).await?;
    Ok(HttpResponse::Ok().json(view(&state, run).await?))
}
