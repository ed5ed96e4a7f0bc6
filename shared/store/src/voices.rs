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

/// An uploaded voice to register, with the consent of its speaker; its files are already in the artifact store.
#[derive(Debug, Clone)]
pub struct NewUpload {
    /// Id.
    pub id: VoiceId,
    /// Unique name.
    pub name: String,
    /// Artifact of the wav, or of the prompt when there is no wav.
    pub artifact: String,
    /// Its hash.
    pub sha256: String,
    /// Artifact of what serving reads.
    pub prompt_artifact: String,
    /// Its hash.
    pub prompt_sha256: String,
    /// Width of the model that embeddings are for; none for samples.
    pub dim: Option<i32>,
    /// Milliseconds.
    pub duration_ms: u64,
}

/// A voice as stored.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Id.
    pub id: VoiceId,
    /// Unique name.
    pub name: String,
    /// Artifact of the wav, or of the prompt when there is no wav.
    pub artifact: String,
    /// Its hash.
    pub sha256: String,
    /// `samples`, or `embeddings` of one width of model.
    pub form: String,
    /// Artifact of what serving reads; none when that is made from the wav.
    pub prompt_artifact: Option<String>,
    /// Its hash.
    pub prompt_sha256: Option<String>,
    /// Width of the model that embeddings are for.
    pub dim: Option<i32>,
    /// Milliseconds.
    pub duration_ms: i64,
    /// Engine that made it, or `upload`.
    pub source: String,
    /// When the uploader said that the speaker agreed; none for voices of engines.
    pub consented_at: Option<DateTime<Utc>>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    artifact: String,
    sha256: String,
    form: String,
    prompt_artifact: Option<String>,
    prompt_sha256: Option<String>,
    dim: Option<i32>,
    duration_ms: i64,
    source: String,
    consented_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Voice {
    fn from(r: Row) -> Self {
        Self {
            id: VoiceId::from_uuid(r.id),
            name: r.name,
            artifact: r.artifact,
            sha256: r.sha256,
            form: r.form,
            prompt_artifact: r.prompt_artifact,
            prompt_sha256: r.prompt_sha256,
            dim: r.dim,
            duration_ms: r.duration_ms,
            source: r.source,
            consented_at: r.consented_at,
            created_at: r.created_at,
        }
    }
}

/// Registers an uploaded voice in the caller's transaction.
///
/// # Errors
/// `NameTaken`.
pub async fn insert(tx: &mut Tx, new: &NewUpload) -> Result<Voice> {
    let row: Row = sqlx::query_as(
        "INSERT INTO voices (id, name, artifact, sha256, form, prompt_artifact, prompt_sha256, dim, duration_ms, \
         source, consented_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'upload', now()) RETURNING *",
    )
    .bind(new.id.uuid())
    .bind(&new.name)
    .bind(&new.artifact)
    .bind(&new.sha256)
    .bind(if new.dim.is_some() { "embeddings" } else { "samples" })
    .bind(&new.prompt_artifact)
    .bind(&new.prompt_sha256)
    .bind(new.dim)
    .bind(i64::try_from(new.duration_ms).unwrap_or(i64::MAX))
    .fetch_one(&mut **tx)
    .await?;
    Ok(row.into())
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

/// The voice of this id or name.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id_or_name: &str) -> Result<Voice> {
    let id = id_or_name.parse::<VoiceId>().ok().map(VoiceId::uuid);
    let row: Option<Row> =
        sqlx::query_as("SELECT * FROM voices WHERE id = $1 OR name = $2 ORDER BY id = $1 DESC LIMIT 1")
            .bind(id)
            .bind(id_or_name)
            .fetch_optional(&store.pool)
            .await?;
    row.map(Into::into).ok_or_else(|| StoreError::not_found("voice", id_or_name))
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
