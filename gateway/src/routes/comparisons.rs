//! Paired comparisons of two evaluations.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::job::{JobKind, JobSpec, JobState};
use domain::{ComparisonId, ErrorCode, EvaluationId, JobId};
use rest::names;
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use store::comparisons::Comparison;
use store::{StoreError, Tx, jobs};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use super::new_job;
use crate::state::{Shared, State};

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(create_comparison)
        .service(list_comparisons)
        .service(get_comparison)
        .service(get_comparison_report_json)
        .service(get_comparison_report_html);
}

/// Request to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "base-against-r1", "baseline_id": "eval_01938f6e0c3b7a54b1f2a0c4d5e6f708",
    "candidate_id": "eval_01938f6e0c3b7a54b1f2a0c4d5e6f709"
}))]
pub struct CreateComparison {
    /// Unique.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// A finished evaluation: the side compared against.
    baseline_id: EvaluationId,
    /// A finished evaluation of the same dataset: the side in question.
    candidate_id: EvaluationId,
}

/// A comparison.
#[derive(Debug, Serialize, ToSchema)]
pub struct ComparisonView {
    id: ComparisonId,
    /// Always `comparison`.
    #[schema(example = "comparison")]
    object: &'static str,
    #[schema(example = "base-against-r1")]
    name: String,
    baseline_id: EvaluationId,
    candidate_id: EvaluationId,
    state: JobState,
    job_id: Option<JobId>,
    /// Verdicts by metric, once finished.
    #[schema(value_type = Option<Object>)]
    summary: Option<serde_json::Value>,
    /// Where the report lies, once finished.
    report_json_url: Option<String>,
    /// The same as a page.
    report_html_url: Option<String>,
    created_at: DateTime<Utc>,
}

async fn view(state: &State, comparison: Comparison) -> Result<ComparisonView, Problem> {
    let job = match jobs::for_subject(&state.store, &comparison.id.to_string(), JobKind::Compare).await {
        Ok(job) => Some(job),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let url = |file| format!("/v1/comparisons/{}/{file}", comparison.id);
    Ok(ComparisonView {
        id: comparison.id,
        object: "comparison",
        name: comparison.name,
        baseline_id: comparison.a_id,
        candidate_id: comparison.b_id,
        state: job.as_ref().map_or(JobState::Queued, |j| j.state),
        job_id: job.map(|j| j.id),
        summary: comparison.summary,
        report_json_url: comparison.report_json.map(|_| url("report.json")),
        report_html_url: comparison.report_html.map(|_| url("report.html")),
        created_at: comparison.created_at,
    })
}

/// A finished evaluation named in the body.
async fn finished(state: &State, pointer: &str, id: EvaluationId) -> Result<(), Problem> {
    let found = names::reference(pointer, store::evaluations::get(&state.store, id).await)?;
    if found.summary.is_none() {
        return Err(Problem::new(ErrorCode::Conflict, format!("evaluation {id} has not finished")));
    }
    Ok(())
}

/// Start a comparison.
///
/// Pairs the dialogues of two finished evaluations and says, by metric, whether the candidate is better.
#[utoipa::path(operation_id = "createComparison", tag = "evaluations", request_body = CreateComparison,
    responses((status = 201, description = "The comparison is queued.", body = ComparisonView)),
    extensions(("x-required-scope" = json!("evals:write"))))]
#[post("/v1/comparisons")]
async fn create_comparison(
    state: Shared,
    trace: Trace,
    posted: Posted<CreateComparison>,
) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateComparison| {
        names::check(&body.name, Vec::new())?;
        finished(&state, "/baseline_id", body.baseline_id).await?;
        finished(&state, "/candidate_id", body.candidate_id).await?;
        if body.baseline_id == body.candidate_id {
            return Err(Problem::field("/candidate_id", "must be another evaluation than the baseline"));
        }
        Ok(body)
    };
    let write = async |tx: &mut Tx, body: CreateComparison| {
        let id = ComparisonId::generate();
        store::comparisons::insert(tx, id, &body.name, body.baseline_id, body.candidate_id).await?;
        let job = new_job(&state, &trace, JobSpec::Compare { comparison_id: id });
        jobs::enqueue(tx, &job).await?;
        let view = ComparisonView {
            id,
            object: "comparison",
            name: body.name,
            baseline_id: body.baseline_id,
            candidate_id: body.candidate_id,
            state: JobState::Queued,
            job_id: Some(job.id),
            summary: None,
            report_json_url: None,
            report_html_url: None,
            created_at: store::transaction_time(tx).await?,
        };
        Ok(Created { location: format!("/v1/comparisons/{id}"), view })
    };
    posted.once(&state.store, &[], prepare, write).await
}

/// List comparisons.
#[utoipa::path(operation_id = "listComparisons", tag = "evaluations", params(PageQuery),
    responses((status = 200, description = "A page of comparisons.", body = List<ComparisonView>)),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/comparisons")]
async fn list_comparisons(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::comparisons::list(&state.store, page.0.request(ComparisonId::uuid)?).await?;
    let mut views = Vec::with_capacity(page.items.len());
    for comparison in page.items {
        views.push(view(&state, comparison).await?);
    }
    Ok(List::page(views, |v| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a comparison.
#[utoipa::path(operation_id = "getComparison", tag = "evaluations", params(("id" = ComparisonId, Path, description = "The comparison.")),
    responses((status = 200, description = "The comparison.", body = ComparisonView)),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/comparisons/{id}")]
async fn get_comparison(state: Shared, id: Id<ComparisonId>) -> Result<HttpResponse, Problem> {
    let comparison = store::comparisons::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok().json(view(&state, comparison).await?))
}

async fn report(
    state: &State,
    id: ComparisonId,
    file: impl Fn(Comparison) -> Option<String>,
) -> Result<bytes::Bytes, Problem> {
    let comparison = store::comparisons::get(&state.store, id).await?;
    let key = file(comparison)
        .ok_or_else(|| Problem::new(ErrorCode::Conflict, format!("comparison {id} has not finished")))?;
    Ok(state.artifacts.get(&key).await?)
}

/// Get the report of a comparison as JSON.
#[utoipa::path(operation_id = "getComparisonReportJson", tag = "evaluations", params(("id" = ComparisonId, Path, description = "The comparison.")),
    responses((status = 200, description = "The report.", body = Object, content_type = "application/json")),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/comparisons/{id}/report.json")]
async fn get_comparison_report_json(state: Shared, id: Id<ComparisonId>) -> Result<HttpResponse, Problem> {
    let bytes = report(&state, id.0, |c| c.report_json).await?;
    Ok(HttpResponse::Ok().content_type("application/json").body(bytes))
}

/// Get the report of a comparison as a page.
#[utoipa::path(operation_id = "getComparisonReportHtml", tag = "evaluations", params(("id" = ComparisonId, Path, description = "The comparison.")),
    responses((status = 200, description = "The report.", body = String, content_type = "text/html")),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/comparisons/{id}/report.html")]
async fn get_comparison_report_html(state: Shared, id: Id<ComparisonId>) -> Result<HttpResponse, Problem> {
    let bytes = report(&state, id.0, |c| c.report_html).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, rest::REPORT_CSP))
        .body(bytes))
}
