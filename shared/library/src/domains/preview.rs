//! What a pack makes of one row: the prompts of a writing model, and the dialogue of the offline generator.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, post};
use domain::dialogue::{DialogueRecord, RecordFault};
use domain::pack::DomainPack;
use drafting::prompts;
use drafting::sampler::{Design, DesignReport};
use rest::{Posted, Problem};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::edit::checked;
use super::find;
use crate::{Shared, State};

/// Rows of the design when the request does not say.
const ROWS: u32 = 100;
/// Most rows of a design that is only looked at.
const MAX_ROWS: u32 = 5_000;

/// What to preview.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"domain": "pharma_adherence", "dialogues": 100, "seed": 7, "row": 3}))]
pub struct PreviewDomain {
    /// Id of a domain; or give `pack`.
    domain: Option<String>,
    /// Version of that domain; without it the one that new datasets use.
    version: Option<u32>,
    /// A pack that is not stored.
    #[schema(value_type = Option<Object>)]
    pack: Option<Value>,
    /// Rows of the design.
    #[schema(minimum = 1, maximum = 5000, default = 100)]
    dialogues: Option<u32>,
    /// Seed of the design.
    #[serde(default)]
    #[schema(default = 0)]
    seed: u64,
    /// Row to show.
    #[serde(default)]
    #[schema(default = 0)]
    row: u32,
}

/// One row of a design, and the design.
#[derive(Debug, Serialize, ToSchema)]
pub struct DomainPreview {
    /// Axis to value.
    values: BTreeMap<String, String>,
    /// What a writing model is told about the domain; the same for every row.
    system_prompt: String,
    /// What it is told about this row.
    message: String,
    /// What the offline generator writes.
    dialogue: DialogueRecord,
    /// Rules that this breaks.
    faults: Vec<RecordFault>,
    /// Counts and relations of the design.
    design: DesignReport,
}

/// Preview a domain.
///
/// Nothing is stored and no model is asked.
#[utoipa::path(operation_id = "previewDomain", tag = "datasets", request_body = PreviewDomain,
    responses((status = 200, description = "The row.", body = DomainPreview)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[post("/v1/domains/preview")]
pub(super) async fn preview_domain(
    state: Shared,
    posted: Posted<PreviewDomain>,
) -> Result<HttpResponse, Problem> {
    let body = posted.body;
    let (rows, seed, row) = (body.dialogues.unwrap_or(ROWS), body.seed, body.row);
    if !(1..=MAX_ROWS).contains(&rows) {
        return Err(Problem::field("/dialogues", format!("must be 1 to {MAX_ROWS}, not {rows}")));
    }
    if row >= rows {
        return Err(Problem::field("/row", format!("must be below {rows}, the number of rows, not {row}")));
    }
    let pack = wanted(&state, body).await?;
    let made = tokio::task::spawn_blocking(move || preview(&pack, rows, seed, row));
    let made = made.await.map_err(Problem::internal)?;
    Ok(HttpResponse::Ok().json(made.map_err(|error| Problem::field("", error.to_string()))?))
}

async fn wanted(state: &State, body: PreviewDomain) -> Result<DomainPack, Problem> {
    match (body.domain, body.pack) {
        (None, Some(pack)) => checked(pack).await,
        (Some(id), None) => match find(state, &id, body.version).await? {
            Some((pack, _)) => Ok(pack),
            None => {
                let shown: String = id.chars().take(80).collect();
                Err(Problem::field("/domain", format!("there is no domain {shown:?} of this version")))
            }
        },
        _ => Err(Problem::field("/domain", "give either the id of a domain or a pack")),
    }
}

fn preview(pack: &DomainPack, rows: u32, seed: u64, row: u32) -> Result<DomainPreview, drafting::DraftError> {
    let design = Design::new(pack, rows, seed)?;
    let dialogue = drafting::grammar::generate(pack, &design, row, seed)?;
    let values = design.values(pack, row).unwrap_or_default();
    Ok(DomainPreview {
        system_prompt: prompts::system(pack),
        message: prompts::row(pack, &values),
        faults: drafting::validate::faults(pack, &dialogue),
        design: design.report(pack),
        values,
        dialogue,
    })
}
