//! The worker's side of a job: claim, heartbeat, finish, fail, hand back; and the sweeper's.
//!
//! `attempt` is the fencing token: every write of a worker carries it, and a worker whose lease was taken over
//! changes nothing. Lease times are the database's clock.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use domain::job::{JobFailure, JobKind, JobSpec, JobState, Progress};
use domain::{ErrorCode, JobId};

use crate::completion::{self, Completion};
use crate::error::write;
use crate::jobs::{self, Job, JobRow, job_columns};
use crate::{Result, Store, StoreError, Tx, events, outbox, pauses};

/// The right to work on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// Fencing token.
    pub attempt: i32,
}

/// A claimed job.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The right to it.
    pub claim: Claim,
    /// The work.
    pub spec: JobSpec,
    /// Trace context of the request that made it.
    pub traceparent: Option<String>,
}

fn interval(duration: Duration) -> sqlx::postgres::types::PgInterval {
    sqlx::postgres::types::PgInterval {
        months: 0,
        days: 0,
        microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
    }
}

macro_rules! claim_sql {
    ($id:literal) => {
        concat!(
            "UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_owner = $2, lease_until = now() + $3, \
             started_at = coalesce(started_at, now()) \
             WHERE state = 'queued' AND pending_needs = 0 AND run_at <= now() AND id = ",
            $id,
            " RETURNING ",
            job_columns!()
        )
    };
}

/// Claims the job of a doorbell; `None` when somebody else has it or it is over.
///
/// # Errors
/// When the database is unreachable.
pub async fn claim(store: &Store, job: JobId, owner: &str, lease: Duration) -> Result<Option<ClaimedJob>> {
    claimed(store, sqlx::query_as(claim_sql!("$1")).bind(job.uuid()).bind(owner).bind(interval(lease))).await
}

/// Claims the job of a kind that has waited longest: the worker's way around a lost doorbell.
///
/// # Errors
/// When the database is unreachable.
pub async fn claim_next(
    store: &Store,
    kind: JobKind,
    owner: &str,
    lease: Duration,
) -> Result<Option<ClaimedJob>> {
    const SQL: &str = claim_sql!(
        "(SELECT id FROM jobs WHERE kind = $1 AND state = 'queued' AND pending_needs = 0 AND run_at <= now() \
          ORDER BY run_at, id FOR UPDATE SKIP LOCKED LIMIT 1)"
    );
    claimed(store, sqlx::query_as(SQL).bind(kind.as_str()).bind(owner).bind(interval(lease))).await
}

async fn claimed(
    store: &Store,
    query: sqlx::query::QueryAs<'_, sqlx::Postgres, JobRow, sqlx::postgres::PgArguments>,
) -> Result<Option<ClaimedJob>> {
    let mut tx = store.begin().await?;
    let Some(row) = query.fetch_optional(&mut *tx).await? else { return Ok(None) };
    let claim = Claim { job: JobId::from_uuid(row.id), attempt: row.attempt };
    let traceparent = row.traceparent.clone();
    events::append(&mut tx, claim.job, "job.started", json!({ "attempt": claim.attempt })).await?;
    let job = match Job::try_from(row) {
        Ok(job) => Some(ClaimedJob { claim, spec: job.spec, traceparent }),
        Err(error) => {
            // No attempt will read it better.
            let failure = JobFailure { code: ErrorCode::Internal, detail: error.to_string() };
            jobs::end(&mut tx, claim.job, JobState::Failed, Some(&failure)).await?;
            None
        }
    };
    tx.commit().await?;
    Ok(job)
}

/// Extends the lease and tells whether a stop was asked for.
///
/// # Errors
/// `LeaseLost` when the job is no longer ours.
pub async fn heartbeat(store: &Store, claim: Claim, lease: Duration) -> Result<JobState> {
    let state: Option<String> = sqlx::query_scalar(
        "UPDATE jobs SET lease_until = now() + $3 WHERE id = $1 AND attempt = $2 AND lease_until IS NOT NULL RETURNING state",
    )
    .bind(claim.job.uuid())
    .bind(claim.attempt)
    .bind(interval(lease))
    .fetch_optional(&store.pool)
    .await?;
    state.and_then(|s| s.parse().ok()).ok_or(StoreError::LeaseLost { job: claim.job, attempt: claim.attempt })
}

/// Locks the job row and fails unless the claim still holds. Every write of a worker goes through this.
pub(crate) async fn fence(tx: &mut Tx, claim: Claim) -> Result<()> {
    let held: Option<Uuid> = sqlx::query_scalar(
        "SELECT id FROM jobs WHERE id = $1 AND attempt = $2 AND lease_until IS NOT NULL FOR UPDATE",
    )
    .bind(claim.job.uuid())
    .bind(claim.attempt)
    .fetch_optional(&mut **tx)
    .await?;
    held.map(|_| ()).ok_or(StoreError::LeaseLost { job: claim.job, attempt: claim.attempt })
}

/// Records progress as a column and as an event.
///
/// # Errors
/// `LeaseLost`.
pub async fn progress(store: &Store, claim: Claim, progress: &Progress) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    sqlx::query("UPDATE jobs SET progress = $2 WHERE id = $1")
        .bind(claim.job.uuid())
        .bind(write(progress))
        .execute(&mut *tx)
        .await?;
    events::append(&mut tx, claim.job, "job.progress", write(progress)).await?;
    Ok(tx.commit().await?)
}

/// Tells whoever follows the job that a person should look at something.
///
/// # Errors
/// `LeaseLost`.
pub async fn alarm(store: &Store, claim: Claim, alarm: &Value) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    events::append(&mut tx, claim.job, "job.alarm", alarm.clone()).await?;
    Ok(tx.commit().await?)
}

/// Ends the job with its results: one transaction for the rows it made, its state, its event and the jobs it unblocks.
///
/// # Errors
/// `LeaseLost`: nothing was written.
pub async fn finish(store: &Store, claim: Claim, done: Completion) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    let result = completion::apply(&mut tx, done).await?;
    sqlx::query(
        "UPDATE jobs SET state = 'succeeded', finished_at = now(), lease_owner = NULL, lease_until = NULL, result = $2 \
         WHERE id = $1",
    )
    .bind(claim.job.uuid())
    .bind(&result)
    .execute(&mut *tx)
    .await?;
    events::append(&mut tx, claim.job, "job.succeeded", json!({ "result": result })).await?;
    unblock(&mut tx, claim.job).await?;
    Ok(tx.commit().await?)
}

async fn unblock(tx: &mut Tx, finished: JobId) -> Result<()> {
    let ready: Vec<(Uuid, String, i32, Option<String>)> = sqlx::query_as(
        "UPDATE jobs j SET pending_needs = j.pending_needs - 1 FROM job_needs n \
         WHERE n.needs = $1 AND n.job_id = j.id AND j.state = 'queued' RETURNING j.id, j.kind, j.pending_needs, j.traceparent",
    )
    .bind(finished.uuid())
    .fetch_all(&mut **tx)
    .await?;
    for (id, kind, pending, traceparent) in ready {
        if pending == 0 {
            let kind: JobKind = kind.parse().expect("the CHECK constraint lists the kinds");
            outbox::ring(tx, JobId::from_uuid(id), kind, traceparent.as_deref()).await?;
        }
    }
    Ok(())
}

/// Ends the job as cancelled.
///
/// # Errors
/// `LeaseLost`.
pub async fn finish_cancelled(store: &Store, claim: Claim) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    jobs::end(&mut tx, claim.job, JobState::Cancelled, None).await?;
    Ok(tx.commit().await?)
}

/// Records a failure: queued again after `retry_in` while tries are left, else failed for good.
///
/// # Errors
/// `LeaseLost`.
pub async fn fail(
    store: &Store,
    claim: Claim,
    failure: &JobFailure,
    retry_in: Option<Duration>,
) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    let (left, state): (bool, String) =
        sqlx::query_as("SELECT attempt < max_attempts, state FROM jobs WHERE id = $1")
            .bind(claim.job.uuid())
            .fetch_one(&mut *tx)
            .await?;
    match retry_in.filter(|_| left) {
        // Whatever went wrong on the way out, a stop was asked for.
        _ if state == "cancelling" => jobs::end(&mut tx, claim.job, JobState::Cancelled, None).await?,
        Some(_) if state == "pausing" => pauses::rest(&mut tx, claim.job).await?,
        Some(delay) => requeue(&mut tx, claim.job, delay, json!({ "error": failure })).await?,
        None => jobs::end(&mut tx, claim.job, JobState::Failed, Some(failure)).await?,
    }
    Ok(tx.commit().await?)
}

/// Gives the job back unharmed, for a graceful stop: the attempt does not count against it. A job that was to pause rests.
///
/// # Errors
/// `LeaseLost`.
pub async fn hand_back(store: &Store, claim: Claim) -> Result<()> {
    let mut tx = store.begin().await?;
    fence(&mut tx, claim).await?;
    let state: String = sqlx::query_scalar("SELECT state FROM jobs WHERE id = $1")
        .bind(claim.job.uuid())
        .fetch_one(&mut *tx)
        .await?;
    if state == "cancelling" {
        jobs::end(&mut tx, claim.job, JobState::Cancelled, None).await?;
    } else if state == "pausing" {
        pauses::rest(&mut tx, claim.job).await?;
    } else {
        sqlx::query("UPDATE jobs SET max_attempts = max_attempts + 1 WHERE id = $1")
            .bind(claim.job.uuid())
            .execute(&mut *tx)
            .await?;
        requeue(&mut tx, claim.job, Duration::ZERO, json!({ "reason": "worker_stopping" })).await?;
    }
    Ok(tx.commit().await?)
}

async fn requeue(tx: &mut Tx, job: JobId, delay: Duration, data: Value) -> Result<()> {
    let (kind, traceparent): (String, Option<String>) = sqlx::query_as(
        "UPDATE jobs SET state = 'queued', lease_owner = NULL, lease_until = NULL, run_at = now() + $2, rung_at = NULL \
         WHERE id = $1 RETURNING kind, traceparent",
    )
    .bind(job.uuid())
    .bind(interval(delay))
    .fetch_one(&mut **tx)
    .await?;
    events::append(tx, job, "job.retrying", data).await?;
    if delay.is_zero() {
        let kind = kind.parse().expect("the CHECK constraint lists the kinds");
        outbox::ring(tx, job, kind, traceparent.as_deref()).await?;
    }
    Ok(())
}

/// Takes up what fell down: expired leases are queued again, failed or cancelled; the first waiting jobs of each kind
/// whose doorbell may be lost are rung again (a backlog behind them needs no new bells). Any number of processes may sweep at once. Returns (leases taken up, doorbells rung).
///
/// # Errors
/// When the database is unreachable.
pub async fn sweep(store: &Store, ring_after: Duration) -> Result<(usize, usize)> {
    let mut tx = store.begin().await?;
    let expired: Vec<(Uuid, String, i32, i32)> = sqlx::query_as(
        "SELECT id, state, attempt, max_attempts FROM jobs WHERE lease_until < now() ORDER BY id LIMIT 100 \
         FOR UPDATE SKIP LOCKED",
    )
    .fetch_all(&mut *tx)
    .await?;
    for (id, state, attempt, max_attempts) in &expired {
        let job = JobId::from_uuid(*id);
        if state == "cancelling" {
            jobs::end(&mut tx, job, JobState::Cancelled, None).await?;
        } else if state == "pausing" {
            pauses::rest(&mut tx, job).await?;
        } else if attempt < max_attempts {
            requeue(&mut tx, job, Duration::ZERO, json!({ "reason": "lease_expired", "attempt": attempt }))
                .await?;
        } else {
            let detail = format!("the worker was lost {attempt} times while it held the job");
            jobs::end(
                &mut tx,
                job,
                JobState::Failed,
                Some(&JobFailure { code: ErrorCode::WorkerLost, detail }),
            )
            .await?;
        }
    }
    let silent: Vec<(Uuid, String, Option<String>)> = sqlx::query_as(
        "SELECT j.id, j.kind, j.traceparent FROM jobs j JOIN ( \
             SELECT id, row_number() OVER (PARTITION BY kind ORDER BY run_at, id) AS place FROM jobs \
             WHERE state = 'queued' AND pending_needs = 0 AND run_at <= now() \
         ) head ON head.id = j.id AND head.place <= 16 \
         WHERE (j.rung_at IS NULL OR j.rung_at < now() - $1) \
         AND (SELECT count(*) FROM outbox WHERE exchange = 'jobs') < 1000 FOR UPDATE OF j SKIP LOCKED",
    )
    .bind(interval(ring_after))
    .fetch_all(&mut *tx)
    .await?;
    for (id, kind, traceparent) in &silent {
        let kind = kind.parse().expect("the CHECK constraint lists the kinds");
        outbox::ring(&mut tx, JobId::from_uuid(*id), kind, traceparent.as_deref()).await?;
    }
    tx.commit().await?;
    Ok((expired.len(), silent.len()))
}
