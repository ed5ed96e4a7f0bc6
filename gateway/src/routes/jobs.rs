//! Jobs and their history.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::event::JobEvent;
use domain::job::{JobFailure, JobKind, JobSpec, JobState, Progress};
use domain::{ErrorCode, JobId};
use rest::params::choice;
use rest::{Asked, Id, List, PageQuery, Problem};
use serde::{Deserialize, Serialize};
use store::jobs::{self, Job, JobFilter};
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::events::sse;
use crate::state::Shared;

/// Events of one JSON list.
const EVENTS_PER_PAGE: i64 = 100;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_jobs).service(get_job).service(cancel_job).service(list_job_events);
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobView {
    id: JobId,
    /// Always `job`.
    #[schema(example = "job")]
    object: &'static str,
    kind: JobKind,
    spec: JobSpec,
    state: JobState,
    /// Tries so far.
    attempt: i32,
    /// Needed jobs that have not succeeded yet.
    pending_needs: i32,
    progress: Option<Progress>,
    /// What it left, once succeeded.
    #[schema(value_type = Option<Object>)]
    result: Option<serde_json::Value>,
    error: Option<JobFailure>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
}

impl From<Job> for JobView {
    fn from(job: Job) -> Self {
        Self {
            id: job.id,
            object: "job",
            kind: job.spec.kind(),
            spec: job.spec,
            state: job.state,
            attempt: job.attempt,
            pending_needs: job.pending_needs,
            progress: job.progress,
            result: job.result,
            error: job.error,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
        }
    }
}

/// Which jobs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct JobsQuery {
    /// Only this kind.
    #[param(value_type = Option<JobKind>)]
    kind: Option<String>,
    /// Only this state.
    #[param(value_type = Option<JobState>)]
    state: Option<String>,
    /// Only jobs that work for this dataset, run, evaluation or comparison.
    subject: Option<String>,
}

/// List jobs.
#[utoipa::path(operation_id = "listJobs", tag = "jobs", params(JobsQuery, PageQuery),
    responses((status = 200, description = "A page of jobs.", body = List<JobView>)),
    extensions(("x-required-scope" = json!("jobs:read"))))]
#[get("/v1/jobs")]
async fn list_jobs(
    state: Shared,
    req: HttpRequest,
    query: Asked<JobsQuery>,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let filter = JobFilter {
        kind: choice("kind", query.0.kind.as_deref(), &JobKind::ALL.map(JobKind::as_str))?,
        state: choice("state", query.0.state.as_deref(), &JobState::ALL.map(JobState::as_str))?,
        subject: query.0.subject.filter(|s| !s.contains('\0')),
    };
    let page = jobs::list(&state.store, &filter, page.0.request(JobId::uuid)?).await?;
    let views = page.items.into_iter().map(JobView::from).collect();
    Ok(List::page(views, |v: &JobView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a job.
#[utoipa::path(operation_id = "getJob", tag = "jobs", params(("id" = JobId, Path, description = "The job.")),
    responses((status = 200, description = "The job.", body = JobView)),
    extensions(("x-required-scope" = json!("jobs:read"))))]
#[get("/v1/jobs/{id}")]
async fn get_job(state: Shared, id: Id<JobId>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(JobView::from(jobs::get(&state.store, id.0).await?)))
}

/// Cancel a job.
///
/// A waiting job is cancelled at once, with the jobs that need it; a running one is asked to stop. A job that is over
/// stays as it is, so repeating the call is safe.
#[utoipa::path(operation_id = "cancelJob", tag = "jobs", params(("id" = JobId, Path, description = "The job.")),
    responses((status = 200, description = "The job as it is now.", body = JobView)),
    extensions(("x-required-scope" = json!("jobs:write"))))]
#[post("/v1/jobs/{id}/cancel")]
async fn cancel_job(state: Shared, id: Id<JobId>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(JobView::from(jobs::cancel(&state.store, id.0).await?)))
}

/// One server-sent event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub struct StreamedEvent {
    /// Sequence number; absent in the last event.
    #[schema(example = "3")]
    id: Option<String>,
    /// Type of the event, or `done` at the end of the stream.
    #[schema(example = "job.progress")]
    event: String,
    /// A `JobEvent` as JSON; `{}` in the last event.
    data: String,
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Only events after this sequence number.
    #[param(minimum = 0, default = 0)]
    after_seq: Option<u32>,
    /// Stream server-sent events, as `Accept: text/event-stream` does.
    stream: Option<bool>,
}

/// List or stream the events of a job.
///
/// As JSON: up to 100 events, oldest first. As server-sent events: `id` is the sequence number (gap-free per job), a
/// client resumes with `Last-Event-ID`, and the stream ends with `event: done` after the job's last event.
#[utoipa::path(operation_id = "listJobEvents", tag = "jobs",
    params(("id" = JobId, Path, description = "The job."), EventsQuery,
        ("Last-Event-ID" = Option<u32>, Header, description = "Last sequence number seen; for streams.")),
    responses((status = 200, description = "The events.",
        content((List<JobEvent> = "application/json"), (StreamedEvent = "text/event-stream")))),
    extensions(("x-required-scope" = json!("jobs:read"))))]
#[get("/v1/jobs/{id}/events")]
async fn list_job_events(
    state: Shared,
    req: HttpRequest,
    id: Id<JobId>,
    query: Asked<EventsQuery>,
) -> Result<HttpResponse, Problem> {
    let after = i64::from(query.0.after_seq.unwrap_or(0));
    let header = |name| req.headers().get(name).and_then(|v| v.to_str().ok());
    let accepts = header(&header::ACCEPT).is_some_and(|a| a.contains("text/event-stream"));
    // 404 before the stream starts.
    jobs::get(&state.store, id.0).await?;
    if query.0.stream.unwrap_or(accepts) {
        let resume = match req.headers().get("last-event-id") {
            None => after,
            Some(value) => {
                value.to_str().ok().and_then(|t| t.parse::<u32>().ok()).map(i64::from).ok_or_else(|| {
                    Problem::new(ErrorCode::InvalidRequest, "Last-Event-ID must be a sequence number")
                })?
            }
        };
        return Ok(sse::answer(&state, id.0, resume));
    }
    let mut events = store::events::after(&state.store, id.0, after, EVENTS_PER_PAGE + 1).await?;
    let has_more = events.len() as i64 > EVENTS_PER_PAGE;
    events.truncate(EVENTS_PER_PAGE as usize);
    Ok(HttpResponse::Ok().json(List::page(events, |e: &JobEvent| e.seq.to_string(), has_more)))
}
