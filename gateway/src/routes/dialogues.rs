//! Generated dialogues and how far each is.

use actix_web::{HttpRequest, HttpResponse, get};
use domain::dialogue::DialogueRecord;
use domain::{DatasetId, DialogueId, ErrorCode};
use rest::{Asked, Id, List, PageQuery, Problem};
use serde::{Deserialize, Serialize};
use store::dialogues::Dialogue;
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::Shared;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_dialogues).service(get_dialogue);
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
            is_rendered: d.render.is_some(),
            is_aligned: d.alignment.is_some(),
            duration_ms: d.alignment.map(|a| a.duration_ms).or(rendered),
            split: d.split,
        }
    }
}

/// Which dialogues.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DialoguesQuery {
    /// Only those of this dataset.
    #[param(value_type = Option<DatasetId>)]
    dataset_id: Option<String>,
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
    let dataset =
        query.0.dataset_id.as_deref().map(str::parse::<DatasetId>).transpose().map_err(|e| {
            Problem::new(ErrorCode::InvalidId, format!("query parameter \"dataset_id\": {e}"))
        })?;
    let page = store::dialogues::list(&state.store, dataset, page.0.request(DialogueId::uuid)?).await?;
    let views = page.items.into_iter().map(DialogueView::from).collect();
    Ok(List::page(views, |v: &DialogueView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a dialogue.
#[utoipa::path(operation_id = "getDialogue", tag = "datasets", params(("id" = DialogueId, Path, description = "The dialogue.")),
    responses((status = 200, description = "The dialogue.", body = DialogueView)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/dialogues/{id}")]
async fn get_dialogue(state: Shared, id: Id<DialogueId>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(DialogueView::from(store::dialogues::get(&state.store, id.0).await?)))
}
