//! The sampling design of a dataset, and what became of its rows.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, get};
use domain::dialogue::DialogueStatus;
use domain::{DatasetId, ErrorCode};
use drafting::sampler::{Design, DesignReport};
use rest::{Id, Problem};
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::Shared;

/// A design, and how its rows fared.
#[derive(Debug, Serialize, ToSchema)]
pub struct DatasetDesign {
    /// Counts of every level and relations of every pair of axes.
    design: DesignReport,
    /// What became of the rows, by axis and level.
    outcomes: BTreeMap<String, BTreeMap<String, Fared>>,
}

/// What became of the rows of a level.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct Fared {
    /// Rows written so far.
    written: u32,
    /// Those that keep every rule, approved ones included.
    accepted: u32,
    /// Those that break rules.
    invalid: u32,
    /// Those that a person approved.
    approved: u32,
    /// Those that a person rejected.
    rejected: u32,
    /// Accepted of written: levels far below the others are a bias of the writing model.
    accept_rate: Option<f64>,
}

impl Fared {
    fn add(&mut self, status: DialogueStatus) {
        self.written += 1;
        match status {
            DialogueStatus::Valid => self.accepted += 1,
            DialogueStatus::Approved => {
                self.accepted += 1;
                self.approved += 1;
            }
            DialogueStatus::Invalid => self.invalid += 1,
            DialogueStatus::Rejected => self.rejected += 1,
        }
        self.accept_rate = Some(f64::from(self.accepted) / f64::from(self.written));
    }
}

/// Get the design of a dataset.
///
/// Exact counts of every level, Cramér's V of every pair of axes beside what chance would give, and the accept rate of
/// every level.
#[utoipa::path(operation_id = "getDatasetDesign", tag = "datasets",
    params(("id" = DatasetId, Path, description = "The dataset.")),
    responses((status = 200, description = "The design.", body = DatasetDesign)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets/{id}/design")]
pub(super) async fn get_dataset_design(state: Shared, id: Id<DatasetId>) -> Result<HttpResponse, Problem> {
    let dataset = store::datasets::get(&state.store, id.0).await?;
    if dataset.import.is_some() {
        return Err(Problem::new(
            ErrorCode::NotFound,
            format!("dataset {} was imported; it has no design", id.0),
        ));
    }
    let spec = dataset.spec;
    let pack = library::domains::pack_of(&state.library, &spec).await?;
    let report = tokio::task::spawn_blocking(move || {
        Design::of_blocks(&pack, &spec.design_blocks(), spec.seed).map(|design| design.report(&pack))
    });
    let design = report
        .await
        .map_err(Problem::internal)?
        .map_err(|error| Problem::new(ErrorCode::Conflict, format!("the dataset has no design: {error}")))?;
    let mut outcomes: BTreeMap<String, BTreeMap<String, Fared>> = BTreeMap::new();
    for (status, values) in store::dialogues::review::statuses(&state.store, id.0).await? {
        for (axis, value) in values {
            outcomes.entry(axis).or_default().entry(value).or_default().add(status);
        }
    }
    Ok(HttpResponse::Ok().json(DatasetDesign { design, outcomes }))
}
