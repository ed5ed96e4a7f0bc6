//! Trainings and their checkpoints.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::dataset::DatasetFile;
use domain::run::TrainingSpec;
use domain::{CheckpointId, DatasetId, ModelId, RunId};

use crate::error::{read, write};
use crate::leases::{self, Claim};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A run as stored; its state is that of its job.
#[derive(Debug, Clone)]
pub struct Run {
    /// Id.
    pub id: RunId,
    /// Unique name; the merged model gets it too.
    pub name: String,
    /// What to train on.
    pub dataset_id: DatasetId,
    /// What to start from.
    pub base_id: ModelId,
    /// How.
    pub spec: TrainingSpec,
    /// What came out.
    pub summary: Option<Value>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    dataset_id: Uuid,
    base_id: Uuid,
    spec: Value,
    summary: Option<Value>,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Run {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: RunId::from_uuid(r.id),
            name: r.name,
            dataset_id: DatasetId::from_uuid(r.dataset_id),
            base_id: ModelId::from_uuid(r.base_id),
            spec: read("training spec", r.spec)?,
            summary: r.summary,
            created_at: r.created_at,
        })
    }
}

/// Stores a new run.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(
    tx: &mut Tx,
    id: RunId,
    name: &str,
    dataset: DatasetId,
    base: ModelId,
    spec: &TrainingSpec,
) -> Result<()> {
    sqlx::query("INSERT INTO runs (id, name, dataset_id, base_id, spec) VALUES ($1, $2, $3, $4, $5)")
        .bind(id.uuid())
        .bind(name)
        .bind(dataset.uuid())
        .bind(base.uuid())
        .bind(write(spec))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

pub(crate) async fn set_summary(tx: &mut Tx, id: RunId, summary: &Value) -> Result<()> {
    sqlx::query("UPDATE runs SET summary = $2 WHERE id = $1")
        .bind(id.uuid())
        .bind(summary)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// One run.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: RunId) -> Result<Run> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM runs WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.ok_or_else(|| StoreError::not_found("run", id))?.try_into()
}

/// A page of runs.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Run>> {
    const SQL: [&str; 2] = list_sql!("*", "runs", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}

/// A saved adapter.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Id.
    pub id: CheckpointId,
    /// Its run.
    pub run_id: RunId,
    /// Optimizer update.
    pub step: u32,
    /// Artifact folder.
    pub prefix: String,
    /// Files with hashes.
    pub files: Vec<DatasetFile>,
    /// When it was listed: after every file was in place.
    pub created_at: DateTime<Utc>,
}

/// Attempts that a training has left after it has saved something: only attempts that saved nothing count up.
const ATTEMPTS_AFTER_A_CHECKPOINT: i32 = 5;

/// Lists a checkpoint whose files are in place, fenced by the claim; the step's earlier entry is replaced. A job that gets on
/// may be interrupted as often as it likes: it has attempts left again.
///
/// # Errors
/// `LeaseLost`.
pub async fn add_checkpoint(
    store: &Store,
    claim: Claim,
    run: RunId,
    step: u32,
    prefix: &str,
    files: &[DatasetFile],
) -> Result<CheckpointId> {
    let mut tx = store.begin().await?;
    leases::fence(&mut tx, claim).await?;
    let id: Uuid = sqlx::query_scalar(
        "INSERT INTO checkpoints (id, run_id, step, prefix, files) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (run_id, step) DO UPDATE SET prefix = excluded.prefix, files = excluded.files RETURNING id",
    )
    .bind(CheckpointId::generate().uuid())
    .bind(run.uuid())
    .bind(i32::try_from(step).unwrap_or(i32::MAX))
    .bind(prefix)
    .bind(write(&files))
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query("UPDATE jobs SET max_attempts = greatest(max_attempts, attempt + $2) WHERE id = $1")
        .bind(claim.job.uuid())
        .bind(ATTEMPTS_AFTER_A_CHECKPOINT)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(CheckpointId::from_uuid(id))
}

/// Takes a checkpoint off the list, fenced by the claim; its files may go afterwards.
///
/// # Errors
/// `LeaseLost`.
pub async fn remove_checkpoint(store: &Store, claim: Claim, id: CheckpointId) -> Result<()> {
    let mut tx = store.begin().await?;
    leases::fence(&mut tx, claim).await?;
    sqlx::query("DELETE FROM checkpoints WHERE id = $1").bind(id.uuid()).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

/// Checkpoints of a run, oldest step first.
///
/// # Errors
/// When the database is unreachable.
pub async fn checkpoints(store: &Store, run: RunId) -> Result<Vec<Checkpoint>> {
    let rows: Vec<CheckpointRow> = sqlx::query_as(
        "SELECT id, run_id, step, prefix, files, created_at FROM checkpoints WHERE run_id = $1 ORDER BY step",
    )
    .bind(run.uuid())
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

/// One checkpoint.
///
/// # Errors
/// `NotFound`.
pub async fn checkpoint(store: &Store, id: CheckpointId) -> Result<Checkpoint> {
    let row: Option<CheckpointRow> =
        sqlx::query_as("SELECT id, run_id, step, prefix, files, created_at FROM checkpoints WHERE id = $1")
            .bind(id.uuid())
            .fetch_optional(&store.pool)
            .await?;
    row.ok_or_else(|| StoreError::not_found("checkpoint", id))?.try_into()
}

/// Whether a run that is not over goes on from this checkpoint.
///
/// # Errors
/// When the database is unreachable.
pub async fn is_resumed_from(store: &Store, id: CheckpointId) -> Result<bool> {
    Ok(sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM runs r JOIN jobs j ON j.subject = 'run_' || replace(r.id::text, '-', '') AND j.kind = 'train' \
         WHERE r.spec->>'resume_from' = $1 AND j.state NOT IN ('succeeded','failed','cancelled'))",
    )
    .bind(id.to_string())
    .fetch_one(&store.pool)
    .await?)
}

#[derive(sqlx::FromRow)]
struct CheckpointRow {
    id: Uuid,
    run_id: Uuid,
    step: i32,
    prefix: String,
    files: Value,
    created_at: DateTime<Utc>,
}

impl TryFrom<CheckpointRow> for Checkpoint {
    type Error = StoreError;
    fn try_from(r: CheckpointRow) -> Result<Self> {
        Ok(Self {
            id: CheckpointId::from_uuid(r.id),
            run_id: RunId::from_uuid(r.run_id),
            step: u32::try_from(r.step).unwrap_or_default(),
            prefix: r.prefix,
            files: read("checkpoint files", r.files)?,
            created_at: r.created_at,
        })
    }
}
