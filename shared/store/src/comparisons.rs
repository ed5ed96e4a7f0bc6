//! Paired comparisons of two evaluations.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::{ComparisonId, EvaluationId};

use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A comparison as stored; its state is that of its job.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Id.
    pub id: ComparisonId,
    /// Unique name.
    pub name: String,
    /// The side compared against.
    pub a_id: EvaluationId,
    /// The side in question.
    pub b_id: EvaluationId,
    /// Verdicts by metric.
    pub summary: Option<Value>,
    /// Artifact of the JSON report.
    pub report_json: Option<String>,
    /// Artifact of the HTML report.
    pub report_html: Option<String>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    a_id: Uuid,
    b_id: Uuid,
    summary: Option<Value>,
    report_json: Option<String>,
    report_html: Option<String>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Comparison {
    fn from(r: Row) -> Self {
        Self {
            id: ComparisonId::from_uuid(r.id),
            name: r.name,
            a_id: EvaluationId::from_uuid(r.a_id),
            b_id: EvaluationId::from_uuid(r.b_id),
            summary: r.summary,
            report_json: r.report_json,
            report_html: r.report_html,
            created_at: r.created_at,
        }
    }
}

/// Stores a new comparison.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(
    tx: &mut Tx,
    id: ComparisonId,
    name: &str,
    a: EvaluationId,
    b: EvaluationId,
) -> Result<()> {
    sqlx::query("INSERT INTO comparisons (id, name, a_id, b_id) VALUES ($1, $2, $3, $4)")
        .bind(id.uuid())
        .bind(name)
        .bind(a.uuid())
        .bind(b.uuid())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

pub(crate) async fn finish(
    tx: &mut Tx,
    id: ComparisonId,
    summary: &Value,
    json: &str,
    html: &str,
) -> Result<()> {
    sqlx::query("UPDATE comparisons SET summary = $2, report_json = $3, report_html = $4 WHERE id = $1")
        .bind(id.uuid())
        .bind(summary)
        .bind(json)
        .bind(html)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// One comparison.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: ComparisonId) -> Result<Comparison> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM comparisons WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.map(Into::into).ok_or_else(|| StoreError::not_found("comparison", id))
}

/// A page of comparisons.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Comparison>> {
    const SQL: [&str; 2] = list_sql!("*", "comparisons", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(Into::into).collect()))
}
