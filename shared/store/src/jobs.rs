//! Jobs as the API sees them: enqueue, read, list, cancel. Workers use [`crate::leases`].

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use domain::job::{JobFailure, JobKind, JobSpec, JobState, Progress};
use domain::{ErrorCode, JobId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx, events, outbox};

/// A job to enqueue.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Chosen by the caller, so that needs can refer to it.
    pub id: JobId,
    /// The work.
    pub spec: JobSpec,
    /// Jobs that must succeed first.
    pub needs: Vec<JobId>,
    /// Tries at most.
    pub max_attempts: i32,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
}

/// A job as stored.
#[derive(Debug, Clone)]
pub struct Job {
    /// Id.
    pub id: JobId,
    /// The work.
    pub spec: JobSpec,
    /// State.
    pub state: JobState,
    /// Tries so far.
    pub attempt: i32,
    /// Needed jobs that have not succeeded yet.
    pub pending_needs: i32,
    /// How far it is.
    pub progress: Option<Progress>,
    /// What it left, once succeeded.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<JobFailure>,
    /// Newest event.
    pub last_seq: i64,
    /// Times.
    pub created_at: DateTime<Utc>,
    /// First claim.
    pub started_at: Option<DateTime<Utc>>,
    /// Terminal state reached.
    pub finished_at: Option<DateTime<Utc>>,
}

/// Columns of [`JobRow`], as a literal for `concat!`.
macro_rules! job_columns {
    () => {
        "id, spec, state, attempt, pending_needs, progress, result, error_code, error_detail, last_seq, created_at, \
         started_at, finished_at, traceparent"
    };
}
pub(crate) use job_columns;

#[derive(sqlx::FromRow)]
pub(crate) struct JobRow {
    pub id: Uuid,
    spec: Value,
    pub state: String,
    pub attempt: i32,
    pending_needs: i32,
    progress: Option<Value>,
    result: Option<Value>,
    error_code: Option<String>,
    error_detail: Option<String>,
    last_seq: i64,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    pub traceparent: Option<String>,
}

impl TryFrom<JobRow> for Job {
    type Error = StoreError;
    fn try_from(row: JobRow) -> Result<Self> {
        let error = row.error_code.map(|code| JobFailure {
            code: code.parse().unwrap_or(ErrorCode::Internal),
            detail: row.error_detail.unwrap_or_default(),
        });
        Ok(Self {
            id: JobId::from_uuid(row.id),
            spec: read("job spec", row.spec)?,
            state: row.state.parse().expect("the CHECK constraint lists the states"),
            attempt: row.attempt,
            pending_needs: row.pending_needs,
            progress: row.progress.map(|p| read("job progress", p)).transpose()?,
            result: row.result,
            error,
            last_seq: row.last_seq,
            created_at: row.created_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
        })
    }
}

/// Writes the job, its needs, its first event and, when nothing is needed, its doorbell.
///
/// # Errors
/// When the database refuses.
pub async fn enqueue(tx: &mut Tx, job: &NewJob) -> Result<()> {
    let kind = job.spec.kind();
    let needs: Vec<Uuid> = job.needs.iter().map(|n| n.uuid()).collect();
    sqlx::query(
        "INSERT INTO jobs (id, kind, state, spec, subject, max_attempts, pending_needs, traceparent) \
         VALUES ($1, $2, 'queued', $3, $4, $5, $6, $7)",
    )
    .bind(job.id.uuid())
    .bind(kind.as_str())
    .bind(write(&job.spec))
    .bind(job.spec.subject())
    .bind(job.max_attempts)
    .bind(i32::try_from(needs.len()).unwrap_or(i32::MAX))
    .bind(&job.traceparent)
    .execute(&mut **tx)
    .await?;
    sqlx::query("INSERT INTO job_needs (job_id, needs) SELECT $1, unnest($2::uuid[])")
        .bind(job.id.uuid())
        .bind(&needs)
        .execute(&mut **tx)
        .await?;
    events::append(tx, job.id, "job.queued", json!({ "kind": kind, "needs": job.needs })).await?;
    if needs.is_empty() {
        outbox::ring(tx, job.id, kind, job.traceparent.as_deref()).await?;
    }
    Ok(())
}

/// One job.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: JobId) -> Result<Job> {
    sqlx::query_as::<_, JobRow>(concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = $1"))
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?
        .ok_or_else(|| StoreError::not_found("job", id))?
        .try_into()
}

/// What jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only this kind.
    pub kind: Option<JobKind>,
    /// Only this state.
    pub state: Option<JobState>,
    /// Only jobs that work for this resource (typed id as text).
    pub subject: Option<String>,
}

/// A page of jobs.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, filter: &JobFilter, page: PageRequest) -> Result<Page<Job>> {
    const SQL: [&str; 2] = list_sql!(
        job_columns!(),
        "jobs",
        "($1::text IS NULL OR kind = $1) AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR subject = $3)",
        "$4",
        "$5"
    );
    let rows: Vec<JobRow> = sqlx::query_as(ordered(SQL, page))
        .bind(filter.kind.map(JobKind::as_str))
        .bind(filter.state.map(JobState::as_str))
        .bind(&filter.subject)
        .bind(page.after)
        .bind(page.probe())
        .fetch_all(&store.pool)
        .await?;
    Ok(page.page(rows.into_iter().map(Job::try_from).collect::<Result<_>>()?))
}

/// How the jobs of one resource stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubjectState {
    /// Worst state, or how far the jobs are: failed, cancelled, running, queued, succeeded.
    pub state: JobState,
    /// Jobs that succeeded.
    pub done: i64,
    /// Jobs in all.
    pub total: i64,
}

/// State of a resource from its jobs.
///
/// # Errors
/// When the database is unreachable.
pub async fn subject_state(store: &Store, subject: &str) -> Result<SubjectState> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT state, count(*) FROM jobs WHERE subject = $1 GROUP BY state")
            .bind(subject)
            .fetch_all(&store.pool)
            .await?;
    let count = |s: JobState| rows.iter().find(|(name, _)| name == s.as_str()).map_or(0, |(_, n)| *n);
    let total: i64 = rows.iter().map(|(_, n)| n).sum();
    let done = count(JobState::Succeeded);
    let first = [
        JobState::Failed,
        JobState::Cancelled,
        JobState::Cancelling,
        JobState::Pausing,
        JobState::Paused,
        JobState::Running,
    ]
    .into_iter()
    .find(|s| count(*s) > 0);
    let state = first.unwrap_or(match done {
        0 => JobState::Queued,
        n if n == total => JobState::Succeeded,
        _ => JobState::Running,
    });
    Ok(SubjectState { state, done, total })
}

/// Newest job of a kind for a resource.
///
/// # Errors
/// `NotFound`.
pub async fn for_subject(store: &Store, subject: &str, kind: JobKind) -> Result<Job> {
    sqlx::query_as::<_, JobRow>(concat!(
        "SELECT ",
        job_columns!(),
        " FROM jobs WHERE subject = $1 AND kind = $2 ORDER BY id DESC LIMIT 1"
    ))
    .bind(subject)
    .bind(kind.as_str())
    .fetch_optional(&store.pool)
    .await?
    .ok_or_else(|| StoreError::not_found("job", subject))?
    .try_into()
}

/// Asks for a stop: a waiting job is cancelled at once with the jobs that need it, a running one becomes `cancelling`.
/// A terminal job is left as it is.
///
/// # Errors
/// `NotFound`.
pub async fn cancel(store: &Store, id: JobId) -> Result<Job> {
    let mut tx = store.begin().await?;
    let state: Option<String> = sqlx::query_scalar("SELECT state FROM jobs WHERE id = $1 FOR UPDATE")
        .bind(id.uuid())
        .fetch_optional(&mut *tx)
        .await?;
    match state.as_deref() {
        None => return Err(StoreError::not_found("job", id)),
        Some("queued" | "paused") => end(&mut tx, id, JobState::Cancelled, None).await?,
        Some("running" | "pausing") => {
            sqlx::query("UPDATE jobs SET state = 'cancelling' WHERE id = $1")
                .bind(id.uuid())
                .execute(&mut *tx)
                .await?;
            events::append(&mut tx, id, "job.cancelling", json!({})).await?;
        }
        Some(_) => {}
    }
    tx.commit().await?;
    get(store, id).await
}

/// Puts a job into `failed` or `cancelled` and, with it, every waiting job that needs it.
pub(crate) async fn end(tx: &mut Tx, id: JobId, state: JobState, failure: Option<&JobFailure>) -> Result<()> {
    let mut ended = vec![(id, failure.cloned())];
    while let Some((job, failure)) = ended.pop() {
        let changed = sqlx::query(
            "UPDATE jobs SET state = $2, finished_at = now(), lease_owner = NULL, lease_until = NULL, error_code = $3, \
             error_detail = $4 WHERE id = $1 AND state NOT IN ('succeeded','failed','cancelled')",
        )
        .bind(job.uuid())
        .bind(state.as_str())
        .bind(failure.as_ref().map(|f| f.code.as_str()))
        .bind(failure.as_ref().map(|f| f.detail.as_str()))
        .execute(&mut **tx)
        .await?
        .rows_affected();
        if changed == 0 {
            continue;
        }
        events::append(tx, job, &format!("job.{}", state.as_str()), json!({ "error": failure })).await?;
        let dependants: Vec<Uuid> = sqlx::query_scalar("SELECT job_id FROM job_needs WHERE needs = $1")
            .bind(job.uuid())
            .fetch_all(&mut **tx)
            .await?;
        ended.extend(dependants.into_iter().map(|d| {
            let failure = (state == JobState::Failed).then(|| JobFailure {
                code: ErrorCode::NeedFailed,
                detail: format!("needed job {job} failed"),
            });
            (JobId::from_uuid(d), failure)
        }));
    }
    Ok(())
}
