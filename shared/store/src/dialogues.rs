//! Dialogues and what the stages leave for each.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use domain::dialogue::{DialogueRecord, DialogueStatus, RecordFault, Review};
use domain::job::RowRange;
use domain::{DatasetId, DialogueId};

use crate::error::{read, write};
use crate::{Result, Store, StoreError, Tx};

pub mod review;

/// Where the rendering of a dialogue lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderFacts {
    /// Artifact of the mono wav.
    pub wav: String,
    /// Its hash.
    pub wav_sha256: String,
    /// Artifact of the `RenderReport` JSON.
    pub report: String,
    /// Milliseconds of audio.
    pub duration_ms: u64,
    /// Registered name of the agent's voice.
    pub agent_voice: String,
}

/// Where the aligned form of a dialogue lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignmentFacts {
    /// Artifact of the stereo wav.
    pub wav: String,
    /// Its hash.
    pub wav_sha256: String,
    /// Artifact of the sidecar.
    pub sidecar: String,
    /// Its hash.
    pub sidecar_sha256: String,
    /// Milliseconds of audio.
    pub duration_ms: u64,
    /// Words with times.
    pub words: u64,
    /// Words with interpolated times.
    pub estimated_words: u64,
    /// Gates that it did not pass; such a dialogue is rejected when the dataset is put together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// Side of a dialogue in the published dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// For training.
    Train,
    /// Held out.
    Eval,
    /// Left out, for a reason in `rejects.jsonl`.
    Rejected,
}

impl Split {
    /// Name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Eval => "eval",
            Self::Rejected => "rejected",
        }
    }
}

/// A dialogue that was written: a good one, or the best attempt at one.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDialogue {
    /// Design row.
    pub row: u32,
    /// The record.
    pub record: DialogueRecord,
    /// Rules that it breaks; with any, it is stored as invalid.
    pub faults: Vec<RecordFault>,
    /// Attempts that were made at it, repairs included; at least 1.
    pub attempts: u32,
    /// Smallest hashes of its runs of words, by which [`alike`] finds it; empty = never found.
    pub signature: Vec<i64>,
}

impl From<(u32, DialogueRecord)> for NewDialogue {
    /// A good record at the first attempt.
    fn from((row, record): (u32, DialogueRecord)) -> Self {
        Self { row, record, faults: Vec::new(), attempts: 1, signature: Vec::new() }
    }
}

/// A dialogue as stored.
#[derive(Debug, Clone)]
pub struct Dialogue {
    /// Id.
    pub id: DialogueId,
    /// Its dataset.
    pub dataset_id: DatasetId,
    /// Design row.
    pub row: u32,
    /// The record.
    pub record: DialogueRecord,
    /// Whether it is good, and what a person said.
    pub status: DialogueStatus,
    /// Rules that it breaks; empty unless invalid.
    pub faults: Vec<RecordFault>,
    /// Who decided; none unless approved or rejected.
    pub review: Option<Review>,
    /// Attempts that were made at it.
    pub attempts: u32,
    /// Counted up with every change by a person, from 1.
    pub revision: u64,
    /// Set by the render stage.
    pub render: Option<RenderFacts>,
    /// Set by the align stage.
    pub alignment: Option<AlignmentFacts>,
    /// Set when the dataset is published.
    pub split: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    dataset_id: Uuid,
    row: i32,
    record: Value,
    status: String,
    faults: Value,
    review: Option<Value>,
    attempts: i32,
    revision: i64,
    render: Option<Value>,
    alignment: Option<Value>,
    split: Option<String>,
}

impl TryFrom<Row> for Dialogue {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: DialogueId::from_uuid(r.id),
            dataset_id: DatasetId::from_uuid(r.dataset_id),
            row: u32::try_from(r.row).unwrap_or_default(),
            record: read("dialogue record", r.record)?,
            status: read("dialogue status", Value::String(r.status))?,
            faults: read("dialogue faults", r.faults)?,
            review: r.review.map(|v| read("dialogue review", v)).transpose()?,
            attempts: u32::try_from(r.attempts).unwrap_or_default(),
            revision: u64::try_from(r.revision).unwrap_or_default(),
            render: r.render.map(|v| read("render facts", v)).transpose()?,
            alignment: r.alignment.map(|v| read("alignment facts", v)).transpose()?,
            split: r.split,
        })
    }
}

fn row_number(row: u32) -> i32 {
    i32::try_from(row).unwrap_or(i32::MAX)
}

pub(crate) async fn insert(tx: &mut Tx, dataset: DatasetId, dialogues: &[NewDialogue]) -> Result<()> {
    for new in dialogues {
        let status = if new.faults.is_empty() { DialogueStatus::Valid } else { DialogueStatus::Invalid };
        sqlx::query(
            "INSERT INTO dialogues (id, dataset_id, row, record_id, record, status, faults, attempts, signature) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(DialogueId::generate().uuid())
        .bind(dataset.uuid())
        .bind(row_number(new.row))
        .bind(&new.record.id)
        .bind(write(&new.record))
        .bind(status.as_str())
        .bind(write(&new.faults))
        .bind(row_number(new.attempts.max(1)))
        .bind(&new.signature)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

pub(crate) async fn set_renders(
    tx: &mut Tx,
    dataset: DatasetId,
    renders: &[(u32, RenderFacts)],
) -> Result<()> {
    for (row, facts) in renders {
        sqlx::query("UPDATE dialogues SET render = $3 WHERE dataset_id = $1 AND row = $2")
            .bind(dataset.uuid())
            .bind(row_number(*row))
            .bind(write(facts))
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

pub(crate) async fn set_alignments(
    tx: &mut Tx,
    dataset: DatasetId,
    facts: &[(u32, AlignmentFacts)],
) -> Result<()> {
    for (row, facts) in facts {
        sqlx::query("UPDATE dialogues SET alignment = $3 WHERE dataset_id = $1 AND row = $2")
            .bind(dataset.uuid())
            .bind(row_number(*row))
            .bind(write(facts))
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

pub(crate) async fn set_splits(tx: &mut Tx, dataset: DatasetId, splits: &[(u32, Split)]) -> Result<()> {
    for (row, split) in splits {
        sqlx::query("UPDATE dialogues SET split = $3 WHERE dataset_id = $1 AND row = $2")
            .bind(dataset.uuid())
            .bind(row_number(*row))
            .bind(split.as_str())
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// Dialogues of a dataset in row order; `rows` limits to a shard.
///
/// # Errors
/// When the database is unreachable.
pub async fn of_dataset(store: &Store, dataset: DatasetId, rows: Option<RowRange>) -> Result<Vec<Dialogue>> {
    let rows = rows.unwrap_or(RowRange { from: 0, to: u32::MAX });
    let found: Vec<Row> = sqlx::query_as(
        "SELECT * FROM dialogues WHERE dataset_id = $1 AND row >= $2 AND row < $3 ORDER BY row",
    )
    .bind(dataset.uuid())
    .bind(row_number(rows.from))
    .bind(row_number(rows.to))
    .fetch_all(&store.pool)
    .await?;
    found.into_iter().map(TryInto::try_into).collect()
}

/// One dialogue.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: DialogueId) -> Result<Dialogue> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM dialogues WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.ok_or_else(|| StoreError::not_found("dialogue", id))?.try_into()
}

/// Good dialogues of a dataset outside of `rows` whose signatures have at least `common` hashes in common with this one.
///
/// # Errors
/// When the database is unreachable.
pub async fn alike(
    store: &Store,
    dataset: DatasetId,
    rows: RowRange,
    signature: &[i64],
    common: usize,
) -> Result<Vec<DialogueRecord>> {
    let found: Vec<(Value,)> = sqlx::query_as(
        "SELECT record FROM dialogues WHERE dataset_id = $1 AND NOT (row >= $2 AND row < $3) AND status <> 'invalid' \
         AND signature && $4 AND (SELECT count(*) FROM unnest(signature) s WHERE s = ANY ($4)) >= $5 ORDER BY row",
    )
    .bind(dataset.uuid())
    .bind(row_number(rows.from))
    .bind(row_number(rows.to))
    .bind(signature)
    .bind(i64::try_from(common).unwrap_or(i64::MAX))
    .fetch_all(&store.pool)
    .await?;
    found.into_iter().map(|(record,)| read("dialogue record", record)).collect()
}
