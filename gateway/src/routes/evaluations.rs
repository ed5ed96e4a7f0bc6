//! Evaluations of a model on a dataset.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::evaluation::EvaluationSpec;
use domain::job::{JobKind, JobSpec, JobState};
use domain::run::FieldFault;
use domain::{DatasetId, EvaluationId, JobId, ModelId};
use rest::names;
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use store::evaluations::Evaluation;
use store::{StoreError, Tx, jobs};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use super::new_job;
use crate::state::{Shared, State};

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(create_evaluation)
        .service(list_evaluations)
        .service(get_evaluation)
        .service(list_evaluation_scores);
}

/// Request to evaluate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "insurance-r1-eval", "dataset_id": "ds_01938f6e0c3b7a54b1f2a0c4d5e6f708", "model": "insurance-r1",
    "spec": {"max_dialogues": 4, "seed": 1}
}))]
pub struct CreateEvaluation {
    /// Unique.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// A published dataset; its held-out dialogues are played.
    dataset_id: DatasetId,
    /// Id or name of the model.
    model: String,
    /// How; fields left out have their defaults.
    spec: Option<EvaluationSpec>,
}

fn faults(spec: &EvaluationSpec) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    if !(1..=5_000).contains(&spec.max_dialogues) {
        let detail = format!("must be 1 to 5000, not {}", spec.max_dialogues);
        faults.push(FieldFault { pointer: "/spec/max_dialogues".into(), detail });
    }
    if !(1.0..=3_600.0).contains(&spec.max_seconds) {
        let detail = format!("must be 1 to 3600, not {}", spec.max_seconds);
        faults.push(FieldFault { pointer: "/spec/max_seconds".into(), detail });
    }
    faults
}

/// An evaluation.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluationView {
    id: EvaluationId,
    /// Always `evaluation`.
    #[schema(example = "evaluation")]
    object: &'static str,
    #[schema(example = "insurance-r1-eval")]
    name: String,
    dataset_id: DatasetId,
    model_id: ModelId,
    spec: EvaluationSpec,
    state: JobState,
    job_id: Option<JobId>,
    /// Aggregates by metric, once finished.
    #[schema(value_type = Option<Object>)]
    summary: Option<serde_json::Value>,
    created_at: DateTime<Utc>,
}

async fn view(state: &State, evaluation: Evaluation) -> Result<EvaluationView, Problem> {
    let job = match jobs::for_subject(&state.store, &evaluation.id.to_string(), JobKind::Evaluate).await {
        Ok(job) => Some(job),
        Err(StoreError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(EvaluationView {
        id: evaluation.id,
        object: "evaluation",
        name: evaluation.name,
        dataset_id: evaluation.dataset_id,
        model_id: evaluation.model_id,
        spec: evaluation.spec,
        state: job.as_ref().map_or(JobState::Queued, |j| j.state),
        job_id: job.map(|j| j.id),
        summary: evaluation.summary,
        created_at: evaluation.created_at,
    })
}

/// Start an evaluation.
///
/// Plays held-out dialogues against the model as a client would, and scores what comes back.
#[utoipa::path(operation_id = "createEvaluation", tag = "evaluations", request_body = CreateEvaluation,
    responses((status = 201, description = "The evaluation is queued.", body = EvaluationView)),
    extensions(("x-required-scope" = json!("evals:write"))))]
#[post("/v1/evaluations")]
async fn create_evaluation(
    state: Shared,
    trace: Trace,
    posted: Posted<CreateEvaluation>,
) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateEvaluation| {
        let spec = body.spec.unwrap_or_default();
        names::check(&body.name, faults(&spec))?;
        let dataset = store::datasets::get(&state.store, body.dataset_id).await;
        let dataset = names::published("/dataset_id", dataset)?;
        let model = names::reference("/model", store::models::find(&state.store, &body.model).await)?;
        Ok((body.name, dataset.id, model.id, spec))
    };
    let write = async |tx: &mut Tx, (name, dataset_id, model_id, spec): (String, _, _, EvaluationSpec)| {
        let id = EvaluationId::generate();
        store::evaluations::insert(tx, id, &name, dataset_id, model_id, &spec).await?;
        let job = new_job(&state, &trace, JobSpec::Evaluate { evaluation_id: id });
        jobs::enqueue(tx, &job).await?;
        let view = EvaluationView {
            id,
            object: "evaluation",
            name,
            dataset_id,
            model_id,
            spec,
            state: JobState::Queued,
            job_id: Some(job.id),
            summary: None,
            created_at: store::transaction_time(tx).await?,
        };
        Ok(Created { location: format!("/v1/evaluations/{id}"), view })
    };
    posted.once(&state.store, &[], prepare, write).await
}

/// List evaluations.
#[utoipa::path(operation_id = "listEvaluations", tag = "evaluations", params(PageQuery),
    responses((status = 200, description = "A page of evaluations.", body = List<EvaluationView>)),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/evaluations")]
async fn list_evaluations(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::evaluations::list(&state.store, page.0.request(EvaluationId::uuid)?).await?;
    let mut views = Vec::with_capacity(page.items.len());
    for evaluation in page.items {
        views.push(view(&state, evaluation).await?);
    }
    Ok(List::page(views, |v| v.id.to_string(), page.has_more).answer(&req))
}

/// Get an evaluation.
#[utoipa::path(operation_id = "getEvaluation", tag = "evaluations", params(("id" = EvaluationId, Path, description = "The evaluation.")),
    responses((status = 200, description = "The evaluation.", body = EvaluationView)),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/evaluations/{id}")]
async fn get_evaluation(state: Shared, id: Id<EvaluationId>) -> Result<HttpResponse, Problem> {
    let evaluation = store::evaluations::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok().json(view(&state, evaluation).await?))
}

/// Scores of one dialogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScoreView {
    /// Id of the dialogue record.
    dialogue: String,
    /// Numbers by metric.
    metrics: BTreeMap<String, f64>,
    /// Whether the played conversation was recorded.
    is_recorded: bool,
}

/// List the scores of an evaluation.
#[utoipa::path(operation_id = "listEvaluationScores", tag = "evaluations",
    params(("id" = EvaluationId, Path, description = "The evaluation.")),
    responses((status = 200, description = "One entry per dialogue; empty until the evaluation ends.", body = List<ScoreView>)),
    extensions(("x-required-scope" = json!("evals:read"))))]
#[get("/v1/evaluations/{id}/scores")]
async fn list_evaluation_scores(state: Shared, id: Id<EvaluationId>) -> Result<HttpResponse, Problem> {
    store::evaluations::get(&state.store, id.0).await?;
    let scores = store::evaluations::scores(&state.store, id.0).await?;
    let views = scores
        .into_iter()
        .map(|s| ScoreView { dialogue: s.dialogue, metrics: s.metrics, is_recorded: s.recording.is_some() })
        .collect();
    Ok(HttpResponse::Ok().json(List::whole(views)))
}
