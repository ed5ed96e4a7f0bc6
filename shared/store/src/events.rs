//! The history of a job: gap-free sequence numbers under the job's row lock.

use serde_json::Value;

use domain::JobId;
use domain::event::JobEvent;
use domain::job::JobKind;

use crate::{Result, Store, Tx, outbox};

/// Appends an event and announces it, in the caller's transaction.
pub(crate) async fn append(tx: &mut Tx, job: JobId, kind: &str, data: Value) -> Result<i64> {
    let (seq, job_kind): (i64, String) =
        sqlx::query_as("UPDATE jobs SET last_seq = last_seq + 1 WHERE id = $1 RETURNING last_seq, kind")
            .bind(job.uuid())
            .fetch_one(&mut **tx)
            .await?;
    sqlx::query("INSERT INTO job_events (job_id, seq, kind, data) VALUES ($1, $2, $3, $4)")
        .bind(job.uuid())
        .bind(seq)
        .bind(kind)
        .bind(data)
        .execute(&mut **tx)
        .await?;
    let key = format!("job.{}.{}", job_kind, kind.trim_start_matches("job."));
    outbox::announce(tx, job, &key, seq).await?;
    Ok(seq)
}

/// Events after `seq`, oldest first.
///
/// # Errors
/// When the database is unreachable.
pub async fn after(store: &Store, job: JobId, seq: i64, limit: i64) -> Result<Vec<JobEvent>> {
    let rows: Vec<(i64, String, Value, chrono::DateTime<chrono::Utc>)> = sqlx::query_as(
        "SELECT seq, kind, data, created_at FROM job_events WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3",
    )
    .bind(job.uuid())
    .bind(seq)
    .bind(limit)
    .fetch_all(&store.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(seq, kind, data, created_at)| JobEvent { job_id: job, seq, kind, data, created_at })
        .collect())
}

/// Jobs that wait for a worker, by kind.
///
/// # Errors
/// When the database is unreachable.
pub async fn queue_depth(store: &Store) -> Result<Vec<(JobKind, i64)>> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT kind, ready FROM v_queue_depth").fetch_all(&store.pool).await?;
    Ok(rows.into_iter().filter_map(|(kind, n)| Some((kind.parse().ok()?, n))).collect())
}
