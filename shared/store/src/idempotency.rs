//! First writer wins: the answer to a POST is kept with its effect, in one transaction.

use serde_json::Value;

use crate::{Result, Store, Tx};

/// An answer to give again.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedAnswer {
    /// HTTP status.
    pub status: u16,
    /// `Location` header.
    pub location: Option<String>,
    /// JSON body.
    pub body: Value,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Never used in this scope.
    No,
    /// Used with the same request.
    Same(SavedAnswer),
    /// Used with another request.
    Other,
}

type Row = (Vec<u8>, i32, Option<String>, Value);

/// Looks a key up before any work is done.
///
/// # Errors
/// When the database is unreachable.
pub async fn look_up(store: &Store, scope: &str, key: &str, fingerprint: &[u8]) -> Result<Seen> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT fingerprint, status, location, body FROM idempotency_keys WHERE scope = $1 AND key = $2",
    )
    .bind(scope)
    .bind(key)
    .fetch_optional(&store.pool)
    .await?;
    Ok(row.map_or(Seen::No, |row| judge(row, fingerprint)))
}

/// Keeps the answer in the caller's transaction. When another request with the key commits first, this waits for it and
/// returns its answer: the caller must roll back.
///
/// # Errors
/// When the database refuses.
pub async fn keep(
    tx: &mut Tx,
    scope: &str,
    key: &str,
    fingerprint: &[u8],
    answer: &SavedAnswer,
) -> Result<Seen> {
    let inserted = sqlx::query(
        "INSERT INTO idempotency_keys (scope, key, fingerprint, status, location, body) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (scope, key) DO NOTHING",
    )
    .bind(scope)
    .bind(key)
    .bind(fingerprint)
    .bind(i32::from(answer.status))
    .bind(&answer.location)
    .bind(&answer.body)
    .execute(&mut **tx)
    .await?
    .rows_affected();
    if inserted == 1 {
        return Ok(Seen::No);
    }
    let row: Row = sqlx::query_as(
        "SELECT fingerprint, status, location, body FROM idempotency_keys WHERE scope = $1 AND key = $2",
    )
    .bind(scope)
    .bind(key)
    .fetch_one(&mut **tx)
    .await?;
    Ok(judge(row, fingerprint))
}

fn judge((stored, status, location, body): Row, fingerprint: &[u8]) -> Seen {
    if stored == fingerprint {
        Seen::Same(SavedAnswer { status: u16::try_from(status).unwrap_or(500), location, body })
    } else {
        Seen::Other
    }
}

/// Forgets keys older than 24 hours.
///
/// # Errors
/// When the database is unreachable.
pub async fn forget_old(store: &Store) -> Result<u64> {
    Ok(sqlx::query("DELETE FROM idempotency_keys WHERE created_at < now() - interval '24 hours'")
        .execute(&store.pool)
        .await?
        .rows_affected())
}
