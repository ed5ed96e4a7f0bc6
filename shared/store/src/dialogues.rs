//! Dialogues and what the stages leave for each.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use domain::dialogue::DialogueRecord;
use domain::job::RowRange;
use domain::{DatasetId, DialogueId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

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
            render: r.render.map(|v| read("render facts", v)).transpose()?,
            alignment: r.alignment.map(|v| read("alignment facts", v)).transpose()?,
            split: r.split,
        })
    }
}

fn row_number(row: u32) -> i32 {
    i32::try_from(row).unwrap_or(i32::MAX)
}

pub(crate) async fn insert(tx: &mut Tx, dataset: DatasetId, records: &[(u32, DialogueRecord)]) -> Result<()> {
    for (row, record) in records {
        sqlx::query(
            "INSERT INTO dialogues (id, dataset_id, row, record_id, record) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(DialogueId::generate().uuid())
        .bind(dataset.uuid())
        .bind(row_number(*row))
        .bind(&record.id)
        .bind(write(record))
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
        "SELECT id, dataset_id, row, record, render, alignment, split FROM dialogues \
         WHERE dataset_id = $1 AND row >= $2 AND row < $3 ORDER BY row",
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
    let row: Option<Row> = sqlx::query_as(
        "SELECT id, dataset_id, row, record, render, alignment, split FROM dialogues WHERE id = $1",
    )
    .bind(id.uuid())
    .fetch_optional(&store.pool)
    .await?;
    row.ok_or_else(|| StoreError::not_found("dialogue", id))?.try_into()
}

/// A page of dialogues, of one dataset or of all.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, dataset: Option<DatasetId>, page: PageRequest) -> Result<Page<Dialogue>> {
    const SQL: [&str; 2] = list_sql!(
        "id, dataset_id, row, record, render, alignment, split",
        "dialogues",
        "($1::uuid IS NULL OR dataset_id = $1)",
        "$2",
        "$3"
    );
    let rows: Vec<Row> = sqlx::query_as(ordered(SQL, page))
        .bind(dataset.map(DatasetId::uuid))
        .bind(page.after)
        .bind(page.probe())
        .fetch_all(&store.pool)
        .await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}
