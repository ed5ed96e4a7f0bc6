//! Live conversations. The ticket's hash is kept, never the ticket.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use domain::session::{SamplingParams, SessionOptions, SessionState, SessionStats};
use domain::{ModelId, SessionId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError};

/// A session to open.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Id.
    pub id: SessionId,
    /// Model to talk to.
    pub model_id: ModelId,
    /// Registered voice.
    pub voice: Option<String>,
    /// The brief.
    pub text_prompt: String,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Further choices.
    pub options: SessionOptions,
    /// Hash of the ticket.
    pub ticket_sha256: Vec<u8>,
    /// First use at the latest.
    pub ticket_ttl_s: i32,
}

/// A session as stored.
#[derive(Debug, Clone)]
pub struct Session {
    /// Id.
    pub id: SessionId,
    /// Model.
    pub model_id: ModelId,
    /// Voice.
    pub voice: Option<String>,
    /// The brief.
    pub text_prompt: String,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Further choices.
    pub options: SessionOptions,
    /// State.
    pub state: SessionState,
    /// Measured facts, once ended.
    pub stats: Option<SessionStats>,
    /// Why it ended.
    pub close_reason: Option<String>,
    /// Times.
    pub created_at: DateTime<Utc>,
    /// First socket.
    pub started_at: Option<DateTime<Utc>>,
    /// Last socket closed.
    pub ended_at: Option<DateTime<Utc>>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    model_id: Uuid,
    voice: Option<String>,
    text_prompt: String,
    sampling: Value,
    options: Value,
    state: String,
    stats: Option<Value>,
    close_reason: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
}

impl TryFrom<Row> for Session {
    type Error = StoreError;
    fn try_from(r: Row) -> Result<Self> {
        Ok(Self {
            id: SessionId::from_uuid(r.id),
            model_id: ModelId::from_uuid(r.model_id),
            voice: r.voice,
            text_prompt: r.text_prompt,
            sampling: read("sampling", r.sampling)?,
            options: read("options", r.options)?,
            state: r.state.parse().expect("the CHECK constraint lists the states"),
            stats: r.stats.map(|s| read("session stats", s)).transpose()?,
            close_reason: r.close_reason,
            created_at: r.created_at,
            started_at: r.started_at,
            ended_at: r.ended_at,
        })
    }
}

macro_rules! session_columns {
    () => {
        "id, model_id, voice, text_prompt, sampling, options, state, stats, close_reason, created_at, started_at, ended_at"
    };
}

/// Stores a new session.
///
/// # Errors
/// When the database refuses.
pub async fn insert(tx: &mut crate::Tx, new: &NewSession) -> Result<()> {
    sqlx::query(
        "INSERT INTO sessions (id, model_id, voice, text_prompt, sampling, options, state, ticket_sha256, ticket_expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, 'created', $7, now() + make_interval(secs => $8))",
    )
    .bind(new.id.uuid())
    .bind(new.model_id.uuid())
    .bind(&new.voice)
    .bind(&new.text_prompt)
    .bind(write(&new.sampling))
    .bind(write(&new.options))
    .bind(&new.ticket_sha256)
    .bind(f64::from(new.ticket_ttl_s))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Takes a session live with its ticket: known, not ended, and in time for the first use. `None` otherwise.
///
/// # Errors
/// When the database is unreachable.
pub async fn redeem(store: &Store, ticket_sha256: &[u8]) -> Result<Option<Session>> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "UPDATE sessions SET state = 'live', started_at = coalesce(started_at, now()), resume_until = NULL \
         WHERE ticket_sha256 = $1 AND (state = 'live' OR (state = 'created' AND ticket_expires_at > now())) RETURNING ",
        session_columns!()
    ))
    .bind(ticket_sha256)
    .fetch_optional(&store.pool)
    .await?;
    row.map(TryInto::try_into).transpose()
}

/// Takes a redeemed session back to where its ticket may be used, because its socket was refused: before its first use,
/// or for a while after it ([`detach`]).
///
/// # Errors
/// When the database is unreachable.
pub async fn give_back(store: &Store, id: SessionId, resume_for: Duration) -> Result<()> {
    let unused = sqlx::query(
        "UPDATE sessions SET state = 'created', started_at = NULL \
         WHERE id = $1 AND state = 'live' AND stats IS NULL AND ticket_expires_at > now()",
    )
    .bind(id.uuid())
    .execute(&store.pool)
    .await?;
    if unused.rows_affected() == 0 {
        detach(store, id, None, resume_for).await?;
    }
    Ok(())
}

/// Notes that a live session has no socket any more but may be taken up again with its ticket within `resume_for`.
///
/// # Errors
/// When the database is unreachable.
pub async fn detach(
    store: &Store,
    id: SessionId,
    stats: Option<&SessionStats>,
    resume_for: Duration,
) -> Result<()> {
    sqlx::query(
        "UPDATE sessions SET resume_until = now() + make_interval(secs => $2), stats = coalesce($3, stats) \
         WHERE id = $1 AND state = 'live'",
    )
    .bind(id.uuid())
    .bind(resume_for.as_secs_f64())
    .bind(stats.map(write))
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// Ends sessions whose ticket was never used, those that nobody took up again, and those that are still live after
/// `longest`: their processes are gone.
///
/// # Errors
/// When the database is unreachable.
pub async fn end_stale(store: &Store, longest: Duration) -> Result<u64> {
    Ok(sqlx::query(
        "UPDATE sessions SET state = 'ended', ended_at = now(), close_reason = CASE state WHEN 'live' THEN 'lost' ELSE 'expired' END \
         WHERE (state = 'created' AND ticket_expires_at < now()) OR (state = 'live' AND resume_until < now()) \
            OR (state = 'live' AND started_at < now() - make_interval(secs => $1))",
    )
    .bind(longest.as_secs_f64())
    .execute(&store.pool)
    .await?
    .rows_affected())
}

/// Ends a session; a second end changes nothing.
///
/// # Errors
/// When the database is unreachable.
pub async fn end(store: &Store, id: SessionId, reason: &str, stats: Option<&SessionStats>) -> Result<()> {
    sqlx::query(
        "UPDATE sessions SET state = 'ended', ended_at = now(), close_reason = $2, stats = coalesce($3, stats) \
         WHERE id = $1 AND state <> 'ended'",
    )
    .bind(id.uuid())
    .bind(reason)
    .bind(stats.map(write))
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// One session.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id: SessionId) -> Result<Session> {
    let row: Option<Row> =
        sqlx::query_as(concat!("SELECT ", session_columns!(), " FROM sessions WHERE id = $1"))
            .bind(id.uuid())
            .fetch_optional(&store.pool)
            .await?;
    row.ok_or_else(|| StoreError::not_found("session", id))?.try_into()
}

/// A page of sessions.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<Session>> {
    const SQL: [&str; 2] = list_sql!(session_columns!(), "sessions", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(TryInto::try_into).collect::<Result<_>>()?))
}
