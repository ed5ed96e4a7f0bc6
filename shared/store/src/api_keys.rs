//! API keys: the public key id and the SHA-256 of the secret, never the secret.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use domain::ApiKeyId;

use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A key as stored.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// Id.
    pub id: ApiKeyId,
    /// For people.
    pub name: String,
    /// Public part of the key.
    pub key_id: String,
    /// Hash of the whole key text.
    pub secret_sha256: Vec<u8>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it stopped working.
    pub revoked_at: Option<DateTime<Utc>>,
    /// Last use, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    key_id: String,
    secret_sha256: Vec<u8>,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl From<Row> for ApiKey {
    fn from(r: Row) -> Self {
        Self {
            id: ApiKeyId::from_uuid(r.id),
            name: r.name,
            key_id: r.key_id,
            secret_sha256: r.secret_sha256,
            scopes: r.scopes,
            created_at: r.created_at,
            revoked_at: r.revoked_at,
            last_used_at: r.last_used_at,
        }
    }
}

/// Stores a key; a key id that exists is left as it is, so that registering the bootstrap key at each start is safe.
///
/// # Errors
/// When the database refuses.
pub async fn ensure(
    store: &Store,
    id: ApiKeyId,
    name: &str,
    key_id: &str,
    secret_sha256: &[u8],
    scopes: &[String],
) -> Result<()> {
    sqlx::query(
        "INSERT INTO api_keys (id, name, key_id, secret_sha256, scopes) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (key_id) DO NOTHING",
    )
    .bind(id.uuid())
    .bind(name)
    .bind(key_id)
    .bind(secret_sha256)
    .bind(scopes)
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// Stores a new key in the caller's transaction.
///
/// # Errors
/// When the database refuses.
pub async fn insert(
    tx: &mut Tx,
    id: ApiKeyId,
    name: &str,
    key_id: &str,
    secret_sha256: &[u8],
    scopes: &[String],
) -> Result<()> {
    sqlx::query("INSERT INTO api_keys (id, name, key_id, secret_sha256, scopes) VALUES ($1, $2, $3, $4, $5)")
        .bind(id.uuid())
        .bind(name)
        .bind(key_id)
        .bind(secret_sha256)
        .bind(scopes)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The key with this public part.
///
/// # Errors
/// When the database is unreachable.
pub async fn find(store: &Store, key_id: &str) -> Result<Option<ApiKey>> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM api_keys WHERE key_id = $1")
        .bind(key_id)
        .fetch_optional(&store.pool)
        .await?;
    Ok(row.map(Into::into))
}

/// One key.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: ApiKeyId) -> Result<ApiKey> {
    let row: Option<Row> = sqlx::query_as("SELECT * FROM api_keys WHERE id = $1")
        .bind(id.uuid())
        .fetch_optional(&store.pool)
        .await?;
    row.map(Into::into).ok_or_else(|| StoreError::not_found("API key", id))
}

/// A page of keys.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<ApiKey>> {
    const SQL: [&str; 2] = list_sql!("*", "api_keys", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(Into::into).collect()))
}

/// Stops a key; again is no error.
///
/// # Errors
/// `NotFound`.
pub async fn revoke(store: &Store, id: ApiKeyId) -> Result<()> {
    let changed = sqlx::query("UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE id = $1")
        .bind(id.uuid())
        .execute(&store.pool)
        .await?
        .rows_affected();
    if changed == 0 { Err(StoreError::not_found("API key", id)) } else { Ok(()) }
}

/// Notes the use, at most once a minute.
///
/// # Errors
/// When the database is unreachable.
pub async fn touch(store: &Store, id: ApiKeyId) -> Result<()> {
    sqlx::query(
        "UPDATE api_keys SET last_used_at = now() WHERE id = $1 \
         AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')",
    )
    .bind(id.uuid())
    .execute(&store.pool)
    .await?;
    Ok(())
}
