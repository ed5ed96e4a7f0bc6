//! What can go wrong between us and the database.

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such row.
    #[error("no {noun} {key}")]
    NotFound {
        /// What was looked for.
        noun: &'static str,
        /// Its id or name.
        key: String,
    },
    /// A unique name is in use.
    #[error("the {noun} name is in use")]
    NameTaken {
        /// Constraint that refused.
        noun: String,
    },
    /// The row's state does not allow this.
    #[error("{noun} {key} is {state}: {wanted}")]
    Illegal {
        /// What it is.
        noun: &'static str,
        /// Its id.
        key: String,
        /// Its state.
        state: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The row was changed since the caller saw it.
    #[error("{noun} {key} was changed meanwhile and is at revision {revision} now")]
    Stale {
        /// What it is.
        noun: &'static str,
        /// Its id.
        key: String,
        /// Its revision.
        revision: u64,
    },
    /// The lease was taken over, or the job is over: nothing was written.
    #[error("the lease on {job} (attempt {attempt}) is lost")]
    LeaseLost {
        /// The job.
        job: domain::JobId,
        /// The attempt that lost it.
        attempt: i32,
    },
    /// The URL is not one of Postgres; it is not repeated, it may hold a password.
    #[error("the database URL cannot be parsed: expected postgres://user@host:port/name")]
    BadUrl,
    /// Migrations are missing.
    #[error("the database is at migration {applied}, this program needs {newest}: run `gateway migrate`")]
    NotMigrated {
        /// Needed.
        newest: i64,
        /// Found.
        applied: i64,
    },
    /// A migration failed.
    #[error("migration failed: {0}")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// The database cannot be reached, or has no connection to spare.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// A stored document does not have the shape of this version.
    #[error("stored {what} cannot be read: {source}")]
    Damaged {
        /// Column or noun.
        what: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// Anything else the database says.
    #[error("database error: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// A missing row.
    pub(crate) fn not_found(noun: &'static str, key: impl ToString) -> Self {
        Self::NotFound { noun, key: key.to_string() }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
                Self::Unavailable(error)
            }
            E::Database(db) if db.is_unique_violation() => {
                Self::NameTaken { noun: db.table().unwrap_or("resource").trim_end_matches('s').to_owned() }
            }
            // Class 57: the server is shutting down or starting, or cancelled the statement; 53: out of resources.
            E::Database(db)
                if db
                    .code()
                    .is_some_and(|c| c.starts_with("57") || c.starts_with("53") || c.starts_with("08")) =>
            {
                Self::Unavailable(error)
            }
            _ => Self::Database(error),
        }
    }
}

/// Reads a stored JSON document.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    what: &'static str,
    value: serde_json::Value,
) -> Result<T, StoreError> {
    serde_json::from_value(value).map_err(|source| StoreError::Damaged { what, source })
}

/// Writes a document of ours as JSON.
pub(crate) fn write<T: serde::Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).expect("our documents have string keys and finite shape")
}
