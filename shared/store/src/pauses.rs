//! Trainings that rest: a job that is asked to pause keeps what it has done and waits, without a lease, to be resumed.

use serde_json::json;

use domain::JobId;
use domain::job::JobState;

use crate::jobs::{self, Job};
use crate::{Result, Store, StoreError, Tx, events, outbox};

/// Asks for a pause: a waiting job rests at once, a running one becomes `pausing` and rests when its worker has saved.
/// A job that rests, pauses or is over stays as it is.
///
/// # Errors
/// `NotFound`.
pub async fn pause(store: &Store, id: JobId) -> Result<Job> {
    let mut tx = store.begin().await?;
    match state(&mut tx, id).await?.as_str() {
        "queued" => rest(&mut tx, id).await?,
        "running" => {
            set(&mut tx, id, JobState::Pausing).await?;
            events::append(&mut tx, id, "job.pausing", json!({})).await?;
        }
        _ => {}
    }
    tx.commit().await?;
    jobs::get(store, id).await
}

/// Queues a resting job again; a pause that its worker has not seen yet is taken back. Any other job stays as it is.
///
/// # Errors
/// `NotFound`.
pub async fn resume(store: &Store, id: JobId) -> Result<Job> {
    let mut tx = store.begin().await?;
    match state(&mut tx, id).await?.as_str() {
        "paused" => {
            let (kind, traceparent): (String, Option<String>) = sqlx::query_as(
                "UPDATE jobs SET state = 'queued', run_at = now() WHERE id = $1 RETURNING kind, traceparent",
            )
            .bind(id.uuid())
            .fetch_one(&mut *tx)
            .await?;
            events::append(&mut tx, id, "job.resumed", json!({})).await?;
            let kind = kind.parse().expect("the CHECK constraint lists the kinds");
            outbox::ring(&mut tx, id, kind, traceparent.as_deref()).await?;
        }
        "pausing" => {
            // The worker may have seen the request already; it then hands back a job that is queued again.
            set(&mut tx, id, JobState::Running).await?;
            events::append(&mut tx, id, "job.resumed", json!({})).await?;
        }
        _ => {}
    }
    tx.commit().await?;
    jobs::get(store, id).await
}

/// Ends the lease without ending the job; the attempt does not count against it.
pub(crate) async fn rest(tx: &mut Tx, id: JobId) -> Result<()> {
    sqlx::query(
        "UPDATE jobs SET state = 'paused', max_attempts = max_attempts + (lease_until IS NOT NULL)::int, \
         lease_owner = NULL, lease_until = NULL WHERE id = $1",
    )
    .bind(id.uuid())
    .execute(&mut **tx)
    .await?;
    events::append(tx, id, "job.paused", json!({})).await?;
    Ok(())
}

async fn state(tx: &mut Tx, id: JobId) -> Result<String> {
    let state: Option<String> = sqlx::query_scalar("SELECT state FROM jobs WHERE id = $1 FOR UPDATE")
        .bind(id.uuid())
        .fetch_optional(&mut **tx)
        .await?;
    state.ok_or_else(|| StoreError::not_found("job", id))
}

async fn set(tx: &mut Tx, id: JobId, state: JobState) -> Result<()> {
    sqlx::query("UPDATE jobs SET state = $2 WHERE id = $1")
        .bind(id.uuid())
        .bind(state.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}
