//! Servable models.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::dataset::DatasetFile;
use domain::{ModelId, RunId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A model to register; its files are already in the artifact store.
#[derive(Debug, Clone)]
pub struct NewModel {
    /// Id.
    pub id: ModelId,
    /// Unique name.
    pub name: String,
    /// `base`, `merged` or `adapter`.
    pub kind: &'static str,
    /// Artifact folder: `model.safetensors`, `mimi.safetensors`, `tokenizer.model`, `config.json`.
    pub prefix: String,
    /// The files with their hashes.
    pub files: Vec<DatasetFile>,
    /// The base of a merged model or an adapter.
    pub base_id: Option<ModelId>,
    /// The run that made it.
    pub run_id: Option<RunId>,
}

/// A model as stored.
#[derive(Debug, Clone)]
pub struct Model {
    /// Id.
    pub id: ModelId,
    /// Unique name.
    pub name: String,
    /// `base`, `merged` or `adapter`.
    pub kind: String,
    /// Artifact folder.
    pub prefix: String,
    /// Files with hashes.
    pub files: Vec<DatasetFile>,
    /// The base of a merged model or an adapter.
    pub base_id: Option<ModelId>,
    /// The run that made it.
    pub run_id: Option<RunId>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    kind: String,
    prefix: String,
    files: Value,
    base_id: Option<Uuid>,
    run_id: Option<Uuid>,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Model {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: ModelId::from_uuid(r.id),
            name: r.name,
            kind: r.kind,
            prefix: r.prefix,
            files: read("model files", r.files)?,
            base_id: r.base_id.map(ModelId::from_uuid),
            run_id: r.run_id.map(RunId::from_uuid),
            created_at: r.created_at,
        })
    }
}

/// Registers a model in the caller's transaction.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(tx: &mut Tx, model: &NewModel) -> Result<()> {
    sqlx::query("INSERT INTO models (id, name, kind, prefix, files, base_id, run_id) VALUES ($1, $2, $3, $4, $5, $6, $7)")
        .bind(model.id.uuid())
        .bind(&model.name)
        .bind(model.kind)
        .bind(&model.prefix)
        .bind(write(&model.files))
        .bind(model.base_id.map(ModelId::uuid))
        .bind(model.run_id.map(RunId::uuid))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// One model.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: ModelId) -> Result<Model> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM models WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.ok_or_else(|| StoreError::not_found("model", id))?.try_into()
}

/// The model of this id or name.
///
/// # Errors
/// `NotFound`.
pub async fn find(store: &Store, id_or_name: &str) -> Result<Model> {
    let id = id_or_name.parse::<ModelId>().ok().map(ModelId::uuid);
    let row: Option<Row> =
        sqlx::query_as("SELECT * FROM models WHERE id = $1 OR name = $2 ORDER BY id = $1 DESC LIMIT 1")
            .bind(id)
            .bind(id_or_name)
            .fetch_optional(&store.pool)
            .await?;
    row.ok_or_else(|| StoreError::not_found("model", id_or_name))?.try_into()
}

/// The merged model of a run.
///
/// # Errors
/// When the database is unreachable.
pub async fn of_run(store: &Store, run: RunId) -> Result<Option<Model>> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM models WHERE run_id = $1")
        .bind(run.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.map(TryInto::try_into).transpose()
}

/// A page of models.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Model>> {
    const SQL: [&str; 2] = list_sql!("*", "models", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}
