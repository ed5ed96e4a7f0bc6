//! Knowledge bases and the decisions of puppeteers.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use domain::puppeteer::{PuppeteerDecision, PuppeteerMode};
use domain::{KnowledgeBaseId, SessionId};

use crate::error::{read, write};
use crate::page::{list_sql, ordered};
use crate::{Page, PageRequest, Result, Store, StoreError, Tx};

/// A knowledge base as stored.
#[derive(Debug, Clone)]
pub struct KnowledgeBase {
    /// Id.
    pub id: KnowledgeBaseId,
    /// Unique name.
    pub name: String,
    facts: Value,
    /// Number of facts.
    pub count: usize,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
}

impl KnowledgeBase {
    /// Its facts, in the type of whoever wrote them.
    ///
    /// # Errors
    /// When the row holds something else.
    pub fn facts<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        read("facts", self.facts.clone())
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    name: String,
    facts: Value,
    created_at: DateTime<Utc>,
}

impl From<Row> for KnowledgeBase {
    fn from(r: Row) -> Self {
        let count = r.facts.as_array().map_or(0, Vec::len);
        let id = KnowledgeBaseId::from_uuid(r.id);
        Self { id, name: r.name, facts: r.facts, count, created_at: r.created_at }
    }
}

/// Stores a knowledge base.
///
/// # Errors
/// `NameTaken`.
pub async fn insert<T: Serialize>(tx: &mut Tx, name: &str, facts: &[T]) -> Result<KnowledgeBase> {
    let row: Row =
        sqlx::query_as("INSERT INTO knowledge_bases (id, name, facts) VALUES ($1, $2, $3) RETURNING *")
            .bind(KnowledgeBaseId::generate().uuid())
            .bind(name)
            .bind(write(&facts))
            .fetch_one(&mut **tx)
            .await?;
    Ok(row.into())
}

/// The knowledge base of this id or name.
///
/// # Errors
/// `NotFound`.
pub async fn get(store: &Store, id_or_name: &str) -> Result<KnowledgeBase> {
    let id = id_or_name.parse::<KnowledgeBaseId>().ok().map(KnowledgeBaseId::uuid);
    let row: Option<Row> = sqlx::query_as(
        "SELECT * FROM knowledge_bases WHERE id = $1 OR name = $2 ORDER BY id = $1 DESC LIMIT 1",
    )
    .bind(id)
    .bind(id_or_name)
    .fetch_optional(&store.pool)
    .await?;
    row.map(Into::into).ok_or_else(|| StoreError::not_found("knowledge base", id_or_name))
}

/// A page of knowledge bases.
///
/// # Errors
/// When the database is unreachable.
pub async fn list(store: &Store, page: PageRequest) -> Result<Page<KnowledgeBase>> {
    const SQL: [&str; 2] = list_sql!("*", "knowledge_bases", "true", "$1", "$2");
    let rows: Vec<Row> =
        sqlx::query_as(ordered(SQL, page)).bind(page.after).bind(page.probe()).fetch_all(&store.pool).await?;
    Ok(page.page(rows.into_iter().map(Into::into).collect()))
}

/// Removes a knowledge base; sessions that have read it keep what they read.
///
/// # Errors
/// `NotFound`.
pub async fn delete(store: &Store, id: KnowledgeBaseId) -> Result<()> {
    let gone =
        sqlx::query("DELETE FROM knowledge_bases WHERE id = $1").bind(id.uuid()).execute(&store.pool).await?;
    if gone.rows_affected() == 0 { Err(StoreError::not_found("knowledge base", id)) } else { Ok(()) }
}

/// A decision as stored.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The decision.
    pub decision: PuppeteerDecision,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct DecisionRow {
    frame: i64,
    mode: String,
    outcome: String,
    injection_id: Option<String>,
    facts: Vec<String>,
    reason: String,
    latency_ms: i64,
    created_at: DateTime<Utc>,
}

impl TryFrom<DecisionRow> for Decided {
    type Error = StoreError;
    fn try_from(r: DecisionRow) -> Result<Self> {
        let decision = PuppeteerDecision {
            frame: r.frame.unsigned_abs(),
            mode: read("mode", Value::String(r.mode))?,
            outcome: read("outcome", Value::String(r.outcome))?,
            injection_id: r.injection_id,
            facts: r.facts,
            reason: r.reason,
            latency_ms: r.latency_ms.unsigned_abs(),
        };
        Ok(Self { decision, created_at: r.created_at })
    }
}

/// Adds decisions of a session, in order.
///
/// # Errors
/// When the database refuses.
pub async fn add_decisions(store: &Store, session: SessionId, decisions: &[PuppeteerDecision]) -> Result<()> {
    let mut tx = store.begin().await?;
    for d in decisions {
        sqlx::query(
            "INSERT INTO puppeteer_decisions (session_id, frame, mode, outcome, injection_id, facts, reason, latency_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(session.uuid())
        .bind(i64::try_from(d.frame).unwrap_or(i64::MAX))
        .bind(mode(d.mode))
        .bind(d.outcome.as_str())
        .bind(&d.injection_id)
        .bind(&d.facts)
        .bind(&d.reason)
        .bind(i64::try_from(d.latency_ms).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await?;
    }
    crate::commit(tx).await
}

const fn mode(mode: PuppeteerMode) -> &'static str {
    match mode {
        PuppeteerMode::Llm => "llm",
        PuppeteerMode::Keywords => "keywords",
        PuppeteerMode::Scheduled => "scheduled",
    }
}

/// The decisions of a session in their order, the newest `limit` of them.
///
/// # Errors
/// When the database is unreachable.
pub async fn decisions(store: &Store, session: SessionId, limit: i64) -> Result<Vec<Decided>> {
    let mut rows: Vec<DecisionRow> =
        sqlx::query_as("SELECT * FROM puppeteer_decisions WHERE session_id = $1 ORDER BY seq DESC LIMIT $2")
            .bind(session.uuid())
            .bind(limit)
            .fetch_all(&store.pool)
            .await?;
    rows.reverse();
    rows.into_iter().map(TryInto::try_into).collect()
}
