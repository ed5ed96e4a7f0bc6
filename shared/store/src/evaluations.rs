//! Evaluations and their scores.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::evaluation::EvaluationSpec;
use domain::{DatasetId, EvaluationId, ModelId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// An evaluation as stored; its state is that of its job.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Id.
    pub id: EvaluationId,
    /// Unique name.
    pub name: String,
    /// Eval dialogues come from here.
    pub dataset_id: DatasetId,
    /// What is judged.
    pub model_id: ModelId,
    /// How.
    pub spec: EvaluationSpec,
    /// Aggregates by metric.
    pub summary: Option<Value>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

/// Numbers of one played dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Record id.
    pub dialogue: String,
    /// Metric to value.
    pub metrics: BTreeMap<String, f64>,
    /// Artifact of the stereo recording.
    pub recording: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    dataset_id: Uuid,
    model_id: Uuid,
    spec: Value,
    summary: Option<Value>,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Evaluation {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: EvaluationId::from_uuid(r.id),
            name: r.name,
            dataset_id: DatasetId::from_uuid(r.dataset_id),
            model_id: ModelId::from_uuid(r.model_id),
            spec: read("evaluation spec", r.spec)?,
            summary: r.summary,
            created_at: r.created_at,
        })
    }
}

/// Stores a new evaluation.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(
    tx: &mut Tx,
    id: EvaluationId,
    name: &str,
    dataset: DatasetId,
    model: ModelId,
    spec: &EvaluationSpec,
) -> Result<()> {
    sqlx::query("INSERT INTO evaluations (id, name, dataset_id, model_id, spec) VALUES ($1, $2, $3, $4, $5)")
        .bind(id.uuid())
        .bind(name)
        .bind(dataset.uuid())
        .bind(model.uuid())
        .bind(write(spec))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

pub(crate) async fn finish(tx: &mut Tx, id: EvaluationId, summary: &Value, scores: &[Score]) -> Result<()> {
    sqlx::query("UPDATE evaluations SET summary = $2 WHERE id = $1")
        .bind(id.uuid())
        .bind(summary)
        .execute(&mut **tx)
        .await?;
    for score in scores {
        sqlx::query("INSERT INTO evaluation_scores (evaluation_id, dialogue, metrics, recording) VALUES ($1, $2, $3, $4)")
            .bind(id.uuid())
            .bind(&score.dialogue)
            .bind(write(&score.metrics))
            .bind(&score.recording)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// One evaluation.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: EvaluationId) -> Result<Evaluation> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM evaluations WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.ok_or_else(|| StoreError::not_found("evaluation", id))?.try_into()
}

/// Scores of an evaluation by dialogue.
///
/// # Errors
/// When the database is unreachable.
pub async fn scores(store: &Store, id: EvaluationId) -> Result<Vec<Score>> {
    let rows: Vec<(String, Value, Option<String>)> = sqlx::query_as(
        "SELECT dialogue, metrics, recording FROM evaluation_scores WHERE evaluation_id = $1 ORDER BY dialogue",
    )
    .bind(id.uuid())
    .fetch_all(&store.pool)
    .await?;
    rows.into_iter()
        .map(|(dialogue, metrics, recording)| {
            Ok(Score { dialogue, metrics: read("score metrics", metrics)?, recording })
        })
        .collect()
}

/// A page of evaluations.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Evaluation>> {
    const SQL: [&str; 2] = list_sql!("*", "evaluations", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}
