//! Domain packs that people added.

use chrono::{DateTime, Utc};
use serde_json::Value;

use domain::pack::DomainPack;

use crate::error::{read, write};
use crate::{Result, Store, StoreError, Tx};

/// Whether a version is used for new datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DomainState {
    /// Waits for a person to activate it.
    Draft,
    /// New datasets use it.
    Active,
    /// Kept for the datasets that were made with it.
    Retired,
}

/// A version of a pack.
#[derive(Debug, Clone)]
pub struct Domain {
    /// The pack; its id and version are those of the row.
    pub pack: DomainPack,
    /// Whether it is used.
    pub state: DomainState,
    /// Name of the API key that added it.
    pub created_by: String,
    /// When.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    pack: Value,
    state: String,
    created_by: String,
    created_at: DateTime<Utc>,
}

impl TryFrom<Row> for Domain {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            pack: read("domain pack", r.pack)?,
            state: read("domain state", Value::String(r.state))?,
            created_by: r.created_by,
            created_at: r.created_at,
        })
    }
}

/// Stores a version as a draft.
///
/// # Errors
/// `NameTaken` when the version exists.
pub async fn insert(tx: &mut Tx, pack: &DomainPack, created_by: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO domains (id, version, pack, state, created_by) VALUES ($1, $2, $3, 'draft', $4)",
    )
    .bind(&pack.id)
    .bind(number(pack.version))
    .bind(write(pack))
    .bind(created_by)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Whether a domain may have this id; others are not asked for (a NUL is none that the database takes).
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn number(version: u32) -> i32 {
    i32::try_from(version).unwrap_or(i32::MAX)
}

/// A version, or the active one; `None` when there is none.
///
/// # Errors
/// When the database is unreachable.
pub async fn find(store: &Store, id: &str, version: Option<u32>) -> Result<Option<Domain>> {
    if !is_id(id) {
        return Ok(None);
    }
    let row: Option<Row> = sqlx::query_as(
        "SELECT pack, state, created_by, created_at FROM domains WHERE id = $1 \
         AND (version = $2 OR ($2 IS NULL AND state = 'active'))",
    )
    .bind(id)
    .bind(version.map(number))
    .fetch_optional(&store.pool)
    .await?;
    row.map(TryInto::try_into).transpose()
}

/// Every version of every domain, by id and version.
///
/// # Errors
/// When the database is unreachable.
pub async fn all(store: &Store) -> Result<Vec<Domain>> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT pack, state, created_by, created_at FROM domains ORDER BY id, version")
            .fetch_all(&store.pool)
            .await?;
    rows.into_iter().map(TryInto::try_into).collect()
}

/// Makes a version the one that new datasets use; the one before is retired.
///
/// # Errors
/// `NotFound`.
pub async fn activate(tx: &mut Tx, id: &str, version: u32) -> Result<()> {
    if !is_id(id) {
        return Err(StoreError::not_found("domain", format!("{id:?}")));
    }
    sqlx::query("UPDATE domains SET state = 'retired' WHERE id = $1 AND state = 'active' AND version <> $2")
        .bind(id)
        .bind(number(version))
        .execute(&mut **tx)
        .await?;
    let done = sqlx::query("UPDATE domains SET state = 'active' WHERE id = $1 AND version = $2")
        .bind(id)
        .bind(number(version))
        .execute(&mut **tx)
        .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::not_found("domain version", format!("{id}@{version}")));
    }
    Ok(())
}

/// Retires every version; datasets that were made with them keep theirs. `false` when there is none.
///
/// # Errors
/// When the database is unreachable.
pub async fn retire(tx: &mut Tx, id: &str) -> Result<bool> {
    if !is_id(id) {
        return Ok(false);
    }
    let done =
        sqlx::query("UPDATE domains SET state = 'retired' WHERE id = $1").bind(id).execute(&mut **tx).await?;
    Ok(done.rows_affected() > 0)
}
