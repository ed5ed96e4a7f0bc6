//! Dialogues as people see them: found by what they are and say, corrected, approved, rejected.

use std::collections::BTreeMap;

use serde_json::json;

use domain::dialogue::{DialogueRecord, DialogueStatus, FaultCode, RecordFault, Review};
use domain::job::RowRange;
use domain::{DatasetId, DialogueId};

use super::{Dialogue, Row, row_number};
use crate::error::write;
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// Which dialogues; every part that is there has to hold.
#[derive(Debug, Clone, Default)]
pub struct DialogueFilter {
    /// Of this dataset.
    pub dataset: Option<DatasetId>,
    /// Of these design rows.
    pub rows: Option<RowRange>,
    /// In this status.
    pub status: Option<DialogueStatus>,
    /// Breaking this rule.
    pub code: Option<FaultCode>,
    /// With these values of axes.
    pub values: BTreeMap<String, String>,
    /// With these words, as one types them into a search: `"exact words"`, `or`, `-without`.
    pub text: Option<String>,
}

/// A page of dialogues.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, filter: &DialogueFilter, page: PageRequest) -> Result<Page<Dialogue>> {
    const SQL: [&str; 2] = list_sql!(
        "*",
        "dialogues",
        "($3::uuid IS NULL OR dataset_id = $3) AND ($4::int IS NULL OR row >= $4) AND ($5::int IS NULL OR row < $5) \
         AND ($6::text IS NULL OR status = $6) AND ($7::jsonb IS NULL OR faults @> $7) \
         AND ($8::jsonb IS NULL OR record -> 'seed' @> $8) \
         AND ($9::text IS NULL OR search @@ websearch_to_tsquery('english', $9))",
        "$1",
        "$2"
    );
    let rows: Vec<Row> = sqlx::query_as(ordered(SQL, page))
        .bind(page.after)
        .bind(page.probe())
        .bind(filter.dataset.map(DatasetId::uuid))
        .bind(filter.rows.map(|r| row_number(r.from)))
        .bind(filter.rows.map(|r| row_number(r.to)))
        .bind(filter.status.map(DialogueStatus::as_str))
        .bind(filter.code.map(|code| json!([{ "code": code }])))
        .bind((!filter.values.is_empty()).then(|| json!(filter.values)))
        .bind(filter.text.as_deref())
        .fetch_all(&store.pool)
        .await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}

/// Row, status and values of every dialogue of a dataset: what accept rates are made of.
///
/// # Errors
/// When the database is unreachable.
pub async fn statuses(
    store: &Store,
    dataset: DatasetId,
) -> Result<Vec<(DialogueStatus, BTreeMap<String, String>)>> {
    let rows: Vec<(String, serde_json::Value)> =
        sqlx::query_as("SELECT status, record -> 'seed' FROM dialogues WHERE dataset_id = $1 ORDER BY row")
            .bind(dataset.uuid())
            .fetch_all(&store.pool)
            .await?;
    let read = |(status, values): (String, serde_json::Value)| {
        Ok((
            crate::error::read("dialogue status", status.into())?,
            crate::error::read("dialogue values", values)?,
        ))
    };
    rows.into_iter().map(read).collect()
}

/// Locks a dialogue that may still change, at the revision that the caller has seen.
async fn locked(tx: &mut Tx, id: DialogueId, revision: u64) -> Result<Dialogue> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM dialogues WHERE id = $1 FOR UPDATE")
        .bind(id.uuid())
        .fetch_optional(&mut **tx)
        .await?;
    let dialogue: Dialogue = row.ok_or_else(|| StoreError::not_found("dialogue", id))?.try_into()?;
    // Against a release that is on its way: either it sees this change, or this sees it.
    let open: bool = sqlx::query_scalar(
        "SELECT released_at IS NULL AND published_at IS NULL AND coalesce((spec -> 'approved_only')::boolean, false) \
         FROM datasets WHERE id = $1 FOR SHARE",
    )
    .bind(dialogue.dataset_id.uuid())
    .fetch_one(&mut **tx)
    .await?;
    if !open {
        return Err(StoreError::Illegal {
            noun: "dialogue",
            key: id.to_string(),
            state: "part of a dataset that does not wait for approval".into(),
            wanted: "it changes only in a dataset with approved_only, before its release",
        });
    }
    if dialogue.revision != revision {
        return Err(StoreError::Stale { noun: "dialogue", key: id.to_string(), revision: dialogue.revision });
    }
    Ok(dialogue)
}

/// Replaces the record at the revision that was seen; what a person had decided about it no longer holds.
///
/// # Errors
/// `NotFound`; `Stale` at another revision; `Illegal` once the dataset is released.
pub async fn edit(
    tx: &mut Tx,
    id: DialogueId,
    revision: u64,
    record: &DialogueRecord,
    faults: &[RecordFault],
) -> Result<Dialogue> {
    locked(tx, id, revision).await?;
    let status = if faults.is_empty() { DialogueStatus::Valid } else { DialogueStatus::Invalid };
    let row: Row = sqlx::query_as(
        "UPDATE dialogues SET record = $2, faults = $3, status = $4, review = NULL, revision = revision + 1 \
         WHERE id = $1 RETURNING *",
    )
    .bind(id.uuid())
    .bind(write(record))
    .bind(write(&faults))
    .bind(status.as_str())
    .fetch_one(&mut **tx)
    .await?;
    row.try_into()
}

/// Approves or rejects at the revision that was seen.
///
/// # Errors
/// `NotFound`; `Stale` at another revision; `Illegal` once the dataset is released, and for approving what breaks rules.
pub async fn decide(
    tx: &mut Tx,
    id: DialogueId,
    revision: u64,
    is_approved: bool,
    review: &Review,
) -> Result<Dialogue> {
    let dialogue = locked(tx, id, revision).await?;
    if is_approved && !dialogue.faults.is_empty() {
        return Err(StoreError::Illegal {
            noun: "dialogue",
            key: id.to_string(),
            state: "invalid".into(),
            wanted: "it can be approved once it breaks no rule",
        });
    }
    let status = if is_approved { DialogueStatus::Approved } else { DialogueStatus::Rejected };
    let row: Row = sqlx::query_as(
        "UPDATE dialogues SET status = $2, review = $3, revision = revision + 1 WHERE id = $1 RETURNING *",
    )
    .bind(id.uuid())
    .bind(status.as_str())
    .bind(write(review))
    .fetch_one(&mut **tx)
    .await?;
    row.try_into()
}

/// Closes the review of a dataset; `false` when it was closed before.
///
/// # Errors
/// When the database is unreachable.
pub async fn release(tx: &mut Tx, dataset: DatasetId) -> Result<bool> {
    let done = sqlx::query("UPDATE datasets SET released_at = now() WHERE id = $1 AND released_at IS NULL")
        .bind(dataset.uuid())
        .execute(&mut **tx)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// How many dialogues of a dataset are approved, as the transaction sees them.
///
/// # Errors
/// When the database is unreachable.
pub async fn approved(tx: &mut Tx, dataset: DatasetId) -> Result<u64> {
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM dialogues WHERE dataset_id = $1 AND status = 'approved'")
            .bind(dataset.uuid())
            .fetch_one(&mut **tx)
            .await?;
    Ok(u64::try_from(count).unwrap_or_default())
}
