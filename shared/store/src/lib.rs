//! All SQL. One file per aggregate, functions not repositories.
//!
//! Functions that belong to somebody's transaction take `&mut Tx`; the caller commits. Reads and single statements
//! take `&Store`. Row types stay private to this crate; nouns come from `domain` or are plain structs here.

#![forbid(unsafe_code)]

pub mod api_keys;
pub mod calls;
pub mod comparisons;
pub mod completion;
pub mod datasets;
pub mod dialogues;
pub mod domains;
mod error;
pub mod evaluations;
pub mod events;
pub mod idempotency;
pub mod jobs;
pub mod leases;
pub mod metrics;
pub mod models;
pub mod outbox;
mod page;
pub mod pauses;
pub mod puppeteers;
pub mod runs;
pub mod sessions;
pub mod voices;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};

pub use error::StoreError;
pub use page::{Page, PageRequest};

/// Short form used throughout.
pub type Result<T> = std::result::Result<T, StoreError>;
/// A transaction; dropped without commit it rolls back.
pub type Tx = sqlx::Transaction<'static, sqlx::Postgres>;

/// Makes a transaction's writes visible.
///
/// # Errors
/// When the database refuses; nothing was written then.
pub async fn commit(tx: Tx) -> Result<()> {
    Ok(tx.commit().await?)
}

/// Start of the transaction: what `DEFAULT now()` writes into its rows.
///
/// # Errors
/// When the connection is lost.
pub async fn transaction_time(tx: &mut Tx) -> Result<chrono::DateTime<chrono::Utc>> {
    Ok(sqlx::query_scalar("SELECT now()").fetch_one(&mut **tx).await?)
}

/// Handle on the database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
}

/// How to reach the database.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// `postgres://…`; may hold a password, so it is never logged.
    pub url: String,
    /// Connections at most.
    pub max_connections: u32,
    /// Longest wait for a connection.
    pub acquire_timeout: Duration,
    /// Longest single statement.
    pub statement_timeout: Duration,
}

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

impl Store {
    /// Opens a pool; the first connection is made when first needed.
    ///
    /// # Errors
    /// When the URL cannot be parsed.
    pub fn open(options: &StoreOptions) -> Result<Self> {
        let millis = options.statement_timeout.as_millis().to_string();
        let connect: PgConnectOptions = options.url.parse().map_err(|_| StoreError::BadUrl)?;
        let connect = connect.application_name("plexforge").options([("statement_timeout", millis.as_str())]);
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .connect_lazy_with(connect);
        Ok(Self { pool })
    }

    /// Wraps a pool that a test made.
    #[must_use]
    pub const fn from_pool(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// When no connection is to be had.
    pub async fn begin(&self) -> Result<Tx> {
        Ok(self.pool.begin().await?)
    }

    /// Applies the migrations that are missing; safe under concurrent starts.
    ///
    /// # Errors
    /// When the database is unreachable or a migration fails.
    pub async fn migrate(&self) -> Result<()> {
        MIGRATOR.run(&self.pool).await.map_err(StoreError::Migration)
    }

    /// Fails unless the database answers and has every migration.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<()> {
        let newest = MIGRATOR.iter().map(|m| m.version).max().unwrap_or(0);
        let applied: Option<i64> =
            sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
                .fetch_one(&self.pool)
                .await?;
        if applied.unwrap_or(0) < newest {
            return Err(StoreError::NotMigrated { newest, applied: applied.unwrap_or(0) });
        }
        Ok(())
    }

    /// Waits until all connections are returned and closed.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Subscribes to the commit-time wake-up of [`outbox`].
    ///
    /// # Errors
    /// When no connection is to be had.
    pub async fn outbox_listener(&self) -> Result<OutboxListener> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(outbox::CHANNEL).await?;
        Ok(OutboxListener { listener })
    }
}

/// Wakes when somebody commits an outbox row.
#[derive(Debug)]
pub struct OutboxListener {
    listener: PgListener,
}

impl OutboxListener {
    /// Waits for the next commit.
    ///
    /// # Errors
    /// When the connection is lost for good.
    pub async fn wait(&mut self) -> Result<()> {
        self.listener.recv().await?;
        Ok(())
    }
}
