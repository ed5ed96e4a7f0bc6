//! Calls of a writing model, one row each: written down before they are made and closed with what came of them.

use serde_json::Value;

use domain::DatasetId;
use domain::job::RowRange;

use crate::leases::{Claim, fence};
use crate::{Result, Store};

/// How a call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// It was answered; the answer with its usage.
    Paid(Value),
    /// It failed and costs nothing.
    Failed(String),
    /// Nobody knows whether it costs something.
    Uncertain(String),
}

/// An answer that was paid for.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidCall {
    /// Design row.
    pub row: u32,
    /// What it cost, in millionths of a dollar.
    pub cost_microusd: u64,
    /// The answer.
    pub answer: Value,
}

fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn row_number(row: u32) -> i32 {
    i32::try_from(row).unwrap_or(i32::MAX)
}

/// Writes a call down before it is made, at its worst case; the answer is its number. `None`: the dataset may not cost
/// that much, and the call must not be made.
///
/// # Errors
/// `LeaseLost`.
pub async fn begin(
    store: &Store,
    claim: Claim,
    dataset: DatasetId,
    row: u32,
    worst: u64,
    most: u64,
) -> Result<Option<i32>> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    // One call after the other may look at the sum.
    sqlx::query("SELECT id FROM datasets WHERE id = $1 FOR UPDATE")
        .bind(dataset.uuid())
        .execute(&mut *tx)
        .await?;
    let attempt: Option<i32> = sqlx::query_scalar(
        "INSERT INTO dialogue_calls (dataset_id, row, attempt, state, cost_microusd) \
         SELECT $1, $2, 1 + coalesce(max(attempt) FILTER (WHERE row = $2), 0), 'in_flight', $3 FROM dialogue_calls \
         WHERE dataset_id = $1 HAVING coalesce(sum(cost_microusd), 0) + $3 <= $4 RETURNING attempt",
    )
    .bind(dataset.uuid())
    .bind(row_number(row))
    .bind(whole(worst))
    .bind(whole(most))
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(attempt)
}

/// Closes a call. An answer that comes after its worker was taken for dead is kept all the same: it is paid for.
///
/// # Errors
/// When the database is unreachable.
pub async fn end(
    store: &Store,
    dataset: DatasetId,
    row: u32,
    attempt: i32,
    cost: u64,
    end: &CallEnd,
) -> Result<()> {
    let (state, answer, error) = match end {
        CallEnd::Paid(answer) => ("paid", Some(answer), None),
        CallEnd::Failed(error) => ("failed", None, Some(error)),
        CallEnd::Uncertain(error) => ("uncertain", None, Some(error)),
    };
    sqlx::query(
        "UPDATE dialogue_calls SET state = $4, cost_microusd = $5, answer = $6, error = $7, ended_at = now() \
         WHERE dataset_id = $1 AND row = $2 AND attempt = $3 AND state IN ('in_flight','uncertain')",
    )
    .bind(dataset.uuid())
    .bind(row_number(row))
    .bind(attempt)
    .bind(state)
    .bind(whole(cost))
    .bind(answer)
    .bind(error)
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// Takes the calls of a shard over from a worker that is gone: those in flight have an unknown end and keep their worst
/// case. The answer is their number.
///
/// # Errors
/// `LeaseLost`.
pub async fn take_over(store: &Store, claim: Claim, dataset: DatasetId, rows: RowRange) -> Result<u64> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    let done = sqlx::query(
        "UPDATE dialogue_calls SET state = 'uncertain', error = 'the worker was lost', ended_at = now() \
         WHERE dataset_id = $1 AND row >= $2 AND row < $3 AND state = 'in_flight'",
    )
    .bind(dataset.uuid())
    .bind(row_number(rows.from))
    .bind(row_number(rows.to))
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(done.rows_affected())
}

/// Paid answers of a shard, by row and then in the order of the calls.
///
/// # Errors
/// When the database is unreachable.
pub async fn paid(store: &Store, dataset: DatasetId, rows: RowRange) -> Result<Vec<PaidCall>> {
    let found: Vec<(i32, i64, Value)> = sqlx::query_as(
        "SELECT row, cost_microusd, answer FROM dialogue_calls \
         WHERE dataset_id = $1 AND row >= $2 AND row < $3 AND state = 'paid' ORDER BY row, attempt",
    )
    .bind(dataset.uuid())
    .bind(row_number(rows.from))
    .bind(row_number(rows.to))
    .fetch_all(&store.pool)
    .await?;
    let read = |(row, cost, answer): (i32, i64, Value)| PaidCall {
        row: u32::try_from(row).unwrap_or_default(),
        cost_microusd: u64::try_from(cost).unwrap_or_default(),
        answer,
    };
    Ok(found.into_iter().map(read).collect())
}

/// What the calls of a dataset cost so far, those of unknown end at their worst case, in millionths of a dollar.
///
/// # Errors
/// When the database is unreachable.
pub async fn cost(store: &Store, dataset: DatasetId) -> Result<u64> {
    let sum: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(cost_microusd), 0)::bigint FROM dialogue_calls WHERE dataset_id = $1",
    )
    .bind(dataset.uuid())
    .fetch_one(&store.pool)
    .await?;
    Ok(u64::try_from(sum).unwrap_or_default())
}
