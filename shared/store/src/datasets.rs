//! Datasets.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::DatasetId;
use domain::dataset::{DatasetSpec, DatasetSummary, ImportSpec};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A dataset as stored; its state is that of its jobs ([`crate::jobs::subject_state`]).
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Id.
    pub id: DatasetId,
    /// Unique name.
    pub name: String,
    /// What to build.
    pub spec: DatasetSpec,
    /// What to import; none for a dataset that is generated.
    pub import: Option<ImportSpec>,
    /// What was built.
    pub summary: Option<DatasetSummary>,
    /// When it was published; from then on it never changes.
    pub published_at: Option<DateTime<Utc>>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

impl Dataset {
    /// Artifact folder of everything that belongs to the dataset.
    #[must_use]
    pub fn prefix(id: DatasetId) -> String {
        format!("datasets/{id}")
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    spec: Value,
    import: Option<Value>,
    summary: Option<Value>,
    published_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Dataset {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: DatasetId::from_uuid(r.id),
            name: r.name,
            spec: read("dataset spec", r.spec)?,
            import: r.import.map(|i| read("dataset import", i)).transpose()?,
            summary: r.summary.map(|s| read("dataset summary", s)).transpose()?,
            published_at: r.published_at,
            created_at: r.created_at,
        })
    }
}

/// Stores a new dataset.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(tx: &mut Tx, id: DatasetId, name: &str, spec: &DatasetSpec) -> Result<()> {
    sqlx::query("INSERT INTO datasets (id, name, spec) VALUES ($1, $2, $3)")
        .bind(id.uuid())
        .bind(name)
        .bind(write(spec))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Stores a new dataset that is to be imported.
///
/// # Errors
/// `NameTaken`.
pub async fn insert_import(
    tx: &mut Tx,
    id: DatasetId,
    name: &str,
    spec: &DatasetSpec,
    import: &ImportSpec,
) -> Result<()> {
    sqlx::query("INSERT INTO datasets (id, name, spec, import) VALUES ($1, $2, $3, $4)")
        .bind(id.uuid())
        .bind(name)
        .bind(write(spec))
        .bind(write(import))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// One dataset.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: DatasetId) -> Result<Dataset> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM datasets WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.ok_or_else(|| StoreError::not_found("dataset", id))?.try_into()
}

/// A page of datasets.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Dataset>> {
    const SQL: [&str; 2] = list_sql!("*", "datasets", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}

/// Writes into the spec how many dialogues an import brought.
pub(crate) async fn set_dialogues(tx: &mut Tx, id: DatasetId, dialogues: usize) -> Result<()> {
    sqlx::query(
        "UPDATE datasets SET spec = jsonb_set(spec, '{dialogues}', to_jsonb($2::bigint)) WHERE id = $1",
    )
    .bind(id.uuid())
    .bind(i64::try_from(dialogues).unwrap_or(i64::MAX))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Publishes once; the database refuses every later change of a published dataset.
pub(crate) async fn publish(tx: &mut Tx, id: DatasetId, summary: &DatasetSummary) -> Result<()> {
    sqlx::query("UPDATE datasets SET summary = $2, published_at = now() WHERE id = $1")
        .bind(id.uuid())
        .bind(write(summary))
        .execute(&mut **tx)
        .await?;
    Ok(())
}
