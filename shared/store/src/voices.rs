//! Voices that sessions and datasets refer to by name.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use domain::VoiceId;

use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A voice to register; its wav is already in the artifact store.
#[derive(Debug, Clone)]
pub struct NewVoice {
    /// Unique name.
    pub name: String,
    /// Artifact of the wav.
    pub artifact: String,
    /// Its hash.
    pub sha256: String,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Engine that made it, or `upload`.
    pub source: String,
}

/// A voice as stored.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Id.
    pub id: VoiceId,
    /// Unique name.
    pub name: String,
    /// Artifact of the wav.
    pub artifact: String,
    /// Its hash.
    pub sha256: String,
    /// Milliseconds.
    pub duration_ms: i64,
    /// Engine that made it, or `upload`.
    pub source: String,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    artifact: String,
    sha256: String,
    duration_ms: i64,
    source: String,
    created_at: DateTime<Utc>,
}

impl From<Row> for Voice {
    fn from(r: Row) -> Self {
        Self {
            id: VoiceId::from_uuid(r.id),
            name: r.name,
            artifact: r.artifact,
            sha256: r.sha256,
            duration_ms: r.duration_ms,
            source: r.source,
            created_at: r.created_at,
        }
    }
}

/// Registers a voice unless its name exists.
///
/// # Errors
/// When the database refuses.
pub async fn ensure(tx: &mut Tx, voice: &NewVoice) -> Result<()> {
    sqlx::query(
        "INSERT INTO voices (id, name, artifact, sha256, duration_ms, source) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (name) DO NOTHING",
    )
    .bind(VoiceId::generate().uuid())
    .bind(&voice.name)
    .bind(&voice.artifact)
    .bind(&voice.sha256)
    .bind(i64::try_from(voice.duration_ms).unwrap_or(i64::MAX))
    .bind(&voice.source)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The voice of this name.
///
/// # Errors
/// `NotFound`.
pub async fn find(store: &Store, name: &str) -> Result<Voice> {
    let row: Option<Row> =
        sqlx::query_as("SELECT * FROM voices WHERE name = $1").bind(name).fetch_optional(&store.pool).await?;
    row.map(Into::into).ok_or_else(|| StoreError::not_found("voice", name))
}

/// A page of voices.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Voice>> {
    const SQL: [&str; 2] = list_sql!("*", "voices", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(Into::into).collect()))
}
