//! Datasets.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::DatasetId;
use domain::dataset::{DatasetName, DatasetSpec, DatasetSummary, ImportSpec};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A dataset as stored; its state is that of its jobs ([`crate::jobs::subject_state`]).
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Id.
    pub id: DatasetId,
    /// Name; versions of one dataset share it.
    pub name: String,
    /// Number of this version, from 1.
    pub version: u32,
    /// What to build.
    pub spec: DatasetSpec,
    /// What to import; none for a dataset that is generated.
    pub import: Option<ImportSpec>,
    /// What was built.
    pub summary: Option<DatasetSummary>,
    /// When it was published; from then on it never changes.
    pub published_at: Option<DateTime<Utc>>,
    /// When its review was closed; none for one without a review, or whose dialogues still wait.
    pub released_at: Option<DateTime<Utc>>,
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
    version: i32,
    spec: Value,
    import: Option<Value>,
    summary: Option<Value>,
    published_at: Option<DateTime<Utc>>,
    released_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Dataset {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: DatasetId::from_uuid(r.id),
            name: r.name,
            version: u32::try_from(r.version).unwrap_or_default(),
            spec: read("dataset spec", r.spec)?,
            import: r.import.map(|i| read("dataset import", i)).transpose()?,
            summary: r.summary.map(|s| read("dataset summary", s)).transpose()?,
            published_at: r.published_at,
            released_at: r.released_at,
            created_at: r.created_at,
        })
    }
}

/// Stores a new dataset; the answer is its version: the first of its name, or the one after the last.
///
/// # Errors
/// When the database is unreachable.
pub async fn insert(tx: &mut Tx, id: DatasetId, name: &str, spec: &DatasetSpec) -> Result<u32> {
    let version: i32 =
        sqlx::query_scalar("INSERT INTO datasets (id, name, spec) VALUES ($1, $2, $3) RETURNING version")
            .bind(id.uuid())
            .bind(name)
            .bind(write(spec))
            .fetch_one(&mut **tx)
            .await?;
    Ok(u32::try_from(version).unwrap_or_default())
}

/// Stores a new dataset that is to be imported; the answer is its version.
///
/// # Errors
/// When the database is unreachable.
pub async fn insert_import(
    tx: &mut Tx,
    id: DatasetId,
    name: &str,
    spec: &DatasetSpec,
    import: &ImportSpec,
) -> Result<u32> {
    const SQL: &str =
        "INSERT INTO datasets (id, name, spec, import) VALUES ($1, $2, $3, $4) RETURNING version";
    let version: i32 = sqlx::query_scalar(SQL)
        .bind(id.uuid())
        .bind(name)
        .bind(write(spec))
        .bind(write(import))
        .fetch_one(&mut **tx)
        .await?;
    Ok(u32::try_from(version).unwrap_or_default())
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

/// A page of datasets: all, or the versions of one name.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, named: Option<&DatasetName>, page: PageRequest) -> Result<Page<Dataset>> {
    const SQL: [&str; 2] = list_sql!(
        "*",
        "datasets",
        "($3::text IS NULL OR name = $3) AND ($4::bigint IS NULL OR version = $4)",
        "$1",
        "$2"
    );
    let rows: Vec<Row> = sqlx::query_as(ordered(SQL, page))
        .bind(page.after)
        .bind(page.probe())
        .bind(named.map(|n| n.name.as_str()))
        .bind(named.and_then(|n| n.version).map(i64::from))
        .fetch_all(&store.pool)
        .await?;
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
