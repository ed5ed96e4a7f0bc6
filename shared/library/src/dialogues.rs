//! Generated dialogues: how far each is, and what people make of them.

mod page;
mod review;

use std::collections::BTreeMap;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get};
use domain::dialogue::{DialogueRecord, DialogueStatus, FaultCode, RecordFault, Review};
use domain::job::JobSpec;
use domain::{DatasetId, DialogueId, ErrorCode, JobId};
use rest::{Asked, Id, List, PageQuery, Problem};
use serde::{Deserialize, Serialize};
use store::dialogues::Dialogue;
use store::dialogues::review::DialogueFilter;
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::{Shared, State};

/// Longest text of a search, in bytes.
const MAX_SEARCH: usize = 500;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(list_dialogues)
        .service(get_dialogue)
        .service(page::get_dialogue_page)
        .service(page::get_review_page)
        .service(review::update_dialogue)
        .service(review::review_dialogue);
}

/// A dialogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct DialogueView {
    id: DialogueId,
    /// Always `dialogue`.
    #[schema(example = "dialogue")]
    object: &'static str,
    dataset_id: DatasetId,
    /// Row of the sampling design.
    row: u32,
    record: DialogueRecord,
    /// Whether it keeps every rule, and what a person said.
    status: DialogueStatus,
    /// Rules that it breaks.
    faults: Vec<RecordFault>,
    /// Who decided; none unless approved or rejected.
    review: Option<Review>,
    /// Attempts that were made at it.
    attempts: u32,
    /// Counted up with every change by a person; the `ETag`.
    revision: u64,
    /// The dialogue as a page to read.
    #[schema(example = "/v1/dialogues/dlg_01938f6e0c3b7a54b1f2a0c4d5e6f708/page")]
    page: String,
    /// Whether audio was synthesised.
    is_rendered: bool,
    /// Whether its words have times.
    is_aligned: bool,
    /// Milliseconds of audio, once rendered.
    duration_ms: Option<u64>,
    /// `train`, `eval` or `rejected`, once the dataset is published.
    split: Option<String>,
}

impl From<Dialogue> for DialogueView {
    fn from(d: Dialogue) -> Self {
        let rendered = d.render.as_ref().map(|r| r.duration_ms);
        Self {
            id: d.id,
            object: "dialogue",
            dataset_id: d.dataset_id,
            row: d.row,
            record: d.record,
            status: d.status,
            faults: d.faults,
            review: d.review,
            attempts: d.attempts,
            revision: d.revision,
            page: format!("/v1/dialogues/{}/page", d.id),
            is_rendered: d.render.is_some(),
            is_aligned: d.alignment.is_some(),
            duration_ms: d.alignment.map(|a| a.duration_ms).or(rendered),
            split: d.split,
        }
    }
}

/// The view with its `ETag`.
fn answer(dialogue: Dialogue) -> HttpResponse {
    let tag = format!("\"{}\"", dialogue.revision);
    HttpResponse::Ok().insert_header((header::ETAG, tag)).json(DialogueView::from(dialogue))
}

/// Which dialogues.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DialoguesQuery {
    /// Only those of this dataset.
    #[param(value_type = Option<DatasetId>)]
    dataset_id: Option<String>,
    /// Only those that this generate job wrote.
    #[param(value_type = Option<JobId>)]
    job_id: Option<String>,
    /// Only those in this status: `valid`, `invalid`, `approved` or `rejected`.
    #[param(value_type = Option<DialogueStatus>)]
    status: Option<String>,
    /// Only those that break this rule, `V01` to `V13`.
    #[param(value_type = Option<FaultCode>)]
    code: Option<String>,
    /// Only those with these values of axes: `axis:value`, several with commas.
    #[param(example = "tenor:warm,outcome:deferred")]
    axis: Option<String>,
    /// Only those with these words in turns, brief or injections: `"exact words"`, `or` and `-without` work.
    #[param(example = "deductible -flood")]
    q: Option<String>,
}

fn bad(name: &str, detail: impl std::fmt::Display) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, format!("query parameter {name:?}: {detail}"))
}

impl DialoguesQuery {
    async fn filter(self, state: &State) -> Result<DialogueFilter, Problem> {
        let id = |name: &str, e: &dyn std::fmt::Display| {
            Problem::new(ErrorCode::InvalidId, format!("query parameter {name:?}: {e}"))
        };
        let mut filter = DialogueFilter {
            dataset: self
                .dataset_id
                .as_deref()
                .map(str::parse)
                .transpose()
                .map_err(|e| id("dataset_id", &e))?,
            status: self
                .status
                .as_deref()
                .map(str::parse)
                .transpose()
                .map_err(|e: String| bad("status", e))?,
            code: self.code.as_deref().map(str::parse).transpose().map_err(|e: String| bad("code", e))?,
            values: self.axis.as_deref().map_or_else(|| Ok(BTreeMap::new()), axis_values)?,
            text: self.q.filter(|q| !q.trim().is_empty()),
            rows: None,
        };
        if filter.text.as_ref().is_some_and(|q| q.len() > MAX_SEARCH || q.contains('\0')) {
            return Err(bad("q", format!("must be a text of at most {MAX_SEARCH} bytes")));
        }
        if let Some(job) = self.job_id {
            let job: JobId = job.parse().map_err(|e| id("job_id", &e))?;
            match store::jobs::get(&state.store, job).await?.spec {
                JobSpec::Generate { dataset_id, rows } if filter.dataset.is_none_or(|d| d == dataset_id) => {
                    (filter.dataset, filter.rows) = (Some(dataset_id), Some(rows));
                }
                _ => return Err(bad("job_id", format!("{job} wrote no dialogues of this dataset"))),
            }
        }
        Ok(filter)
    }
}

fn axis_values(text: &str) -> Result<BTreeMap<String, String>, Problem> {
    let pair = |part: &str| {
        let (axis, value) = part.split_once(':').filter(|(a, v)| !a.is_empty() && !v.is_empty())?;
        Some((axis.trim().to_owned(), value.trim().to_owned()))
    };
    let pairs: Option<BTreeMap<_, _>> = text.split(',').map(pair).collect();
    pairs.filter(|_| !text.contains('\0')).ok_or_else(|| {
        let shown: String = text.chars().take(80).collect();
        bad("axis", format!("expected axis:value, several with commas, not {shown:?}"))
    })
}

/// List dialogues.
#[utoipa::path(operation_id = "listDialogues", tag = "datasets", params(DialoguesQuery, PageQuery),
    responses((status = 200, description = "A page of dialogues.", body = List<DialogueView>)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/dialogues")]
async fn list_dialogues(
    state: Shared,
    req: HttpRequest,
    query: Asked<DialoguesQuery>,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let (filter, page) = (query.0.filter(&state).await?, page.0.request(DialogueId::uuid)?);
    let page = store::dialogues::review::list(&state.store, &filter, page).await?;
    let views = page.items.into_iter().map(DialogueView::from).collect();
    Ok(List::page(views, |v: &DialogueView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a dialogue.
#[utoipa::path(operation_id = "getDialogue", tag = "datasets", params(("id" = DialogueId, Path, description = "The dialogue.")),
    responses((status = 200, description = "The dialogue; its `ETag` is what changes have to name in `If-Match`.", body = DialogueView)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/dialogues/{id}")]
async fn get_dialogue(state: Shared, id: Id<DialogueId>) -> Result<HttpResponse, Problem> {
    Ok(answer(store::dialogues::get(&state.store, id.0).await?))
}
