//! The end of a review: approved dialogues go on to be spoken.

use actix_web::{HttpResponse, post};
use domain::job::{JobState, RowRange};
use domain::{DatasetId, ErrorCode};
use rest::{Id, Problem, Trace};
use store::jobs::{self, NewJob};

use super::{DatasetView, enqueue_speech, view};
use crate::state::Shared;

/// Release a dataset.
///
/// Closes the review of a dataset with `approved_only`: its approved dialogues are rendered, aligned and published; the
/// others are listed in `rejects.jsonl`. No dialogue changes after it.
#[utoipa::path(operation_id = "releaseDataset", tag = "datasets",
    params(("id" = DatasetId, Path, description = "The dataset.")),
    responses((status = 200, description = "The dataset, with the jobs that follow.", body = DatasetView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/datasets/{id}/release")]
pub(super) async fn release_dataset(
    state: Shared,
    trace: Trace,
    id: Id<DatasetId>,
) -> Result<HttpResponse, Problem> {
    let dataset = store::datasets::get(&state.store, id.0).await?;
    let conflict = |detail: String| Err(Problem::new(ErrorCode::Conflict, detail));
    if !dataset.spec.approved_only {
        return conflict(format!(
            "dataset {} was made without approved_only: nothing waits for a release",
            id.0
        ));
    }
    let written = jobs::subject_state(&state.store, &id.0.to_string()).await?.state;
    if dataset.released_at.is_none() && written != JobState::Succeeded {
        return conflict(format!(
            "the dialogues of dataset {} are not written yet: its jobs are {}",
            id.0,
            written.as_str()
        ));
    }
    let mut tx = state.store.begin().await?;
    if !store::dialogues::review::release(&mut tx, id.0).await? {
        return conflict(format!("dataset {} was released before", id.0));
    }
    if store::dialogues::review::approved(&mut tx, id.0).await? == 0 {
        return conflict(format!("no dialogue of dataset {} is approved", id.0));
    }
    let shards = RowRange::shards(dataset.spec.dialogues, dataset.spec.shard_size);
    let shards = shards.into_iter().map(|rows| (rows, Vec::new())).collect();
    let new_job = |spec, needs| NewJob { needs, ..super::super::new_job(&state, &trace, spec) };
    enqueue_speech(&mut tx, id.0, shards, new_job).await?;
    store::commit(tx).await?;
    let dataset = store::datasets::get(&state.store, id.0).await?;
    Ok(HttpResponse::Ok().json(view(&state, dataset).await?))
}
