//! Messages to send once their transaction has committed.

use serde_json::{Value, json};

use domain::JobId;
use domain::job::JobKind;

use crate::{Result, Store, Tx};

/// Notification channel that wakes relays on commit.
pub(crate) const CHANNEL: &str = "ppx_outbox";

/// A message waiting to be published.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct OutboxMessage {
    /// Row.
    pub id: i64,
    /// `jobs` or `events`.
    pub exchange: String,
    /// Routing key.
    pub routing_key: String,
    /// Ids only.
    pub payload: Value,
}

/// Rings the doorbell of a job in the caller's transaction.
pub(crate) async fn ring(tx: &mut Tx, job: JobId, kind: JobKind, traceparent: Option<&str>) -> Result<()> {
    sqlx::query("UPDATE jobs SET rung_at = now() WHERE id = $1").bind(job.uuid()).execute(&mut **tx).await?;
    push(tx, "jobs", kind.as_str(), json!({ "job_id": job, "kind": kind, "traceparent": traceparent })).await
}

/// Announces an event in the caller's transaction.
pub(crate) async fn announce(tx: &mut Tx, job: JobId, routing_key: &str, seq: i64) -> Result<()> {
    push(tx, "events", routing_key, json!({ "job_id": job, "seq": seq })).await
}

async fn push(tx: &mut Tx, exchange: &str, routing_key: &str, payload: Value) -> Result<()> {
    sqlx::query("INSERT INTO outbox (exchange, routing_key, payload) VALUES ($1, $2, $3)")
        .bind(exchange)
        .bind(routing_key)
        .bind(payload)
        .execute(&mut **tx)
        .await?;
    sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL).execute(&mut **tx).await?;
    Ok(())
}

/// Locks up to `limit` waiting messages; they are gone for others until the transaction ends.
///
/// # Errors
/// When the database is unreachable.
pub async fn take_batch(tx: &mut Tx, limit: i64) -> Result<Vec<OutboxMessage>> {
    Ok(sqlx::query_as(
        "SELECT id, exchange, routing_key, payload FROM outbox ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED",
    )
    .bind(limit)
    .fetch_all(&mut **tx)
    .await?)
}

/// Removes messages that the broker has confirmed.
///
/// # Errors
/// When the database is unreachable.
pub async fn mark_sent(tx: &mut Tx, ids: &[i64]) -> Result<()> {
    sqlx::query("DELETE FROM outbox WHERE id = ANY($1)").bind(ids).execute(&mut **tx).await?;
    Ok(())
}

/// Messages waiting.
///
/// # Errors
/// When the database is unreachable.
pub async fn depth(store: &Store) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&store.pool).await?)
}
