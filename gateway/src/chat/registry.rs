//! Which inference process has a free slot. Redis may be gone: then every session goes to the configured address.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use tokio::sync::Mutex;

/// Keys that inference processes refresh while they live.
const PATTERN: &str = "ppx:inference:*";
/// After a failed call Redis is left alone this long.
const BREAK: Duration = Duration::from_secs(1);

/// Finds inference processes.
#[derive(Debug)]
pub struct Registry {
    client: redis::Client,
    patience: Duration,
    fallback: String,
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    connection: Option<MultiplexedConnection>,
    broken_at: Option<Instant>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("broken_at", &self.broken_at).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Instance {
    url: String,
    free_slots: i64,
}

impl Registry {
    /// Does not connect yet.
    ///
    /// # Errors
    /// When the URL cannot be parsed; it is not repeated, it may hold a password.
    pub fn new(url: &str, patience: Duration, fallback: &str) -> anyhow::Result<Self> {
        let client = redis::Client::open(url)
            .map_err(|_| anyhow::anyhow!("[redis].url cannot be parsed: expected redis://host:port/db"))?;
        Ok(Self { client, patience, fallback: fallback.to_owned(), link: Mutex::default() })
    }

    /// Base URLs to try in turn: the processes by free slots, as they said at most ten seconds ago, then the configured one.
    pub async fn candidates(&self) -> Vec<String> {
        let mut instances = self.instances().await.unwrap_or_default();
        instances.sort_by_key(|i| std::cmp::Reverse(i.free_slots));
        let mut urls: Vec<String> = instances.into_iter().map(|i| i.url).collect();
        if !urls.contains(&self.fallback) {
            urls.push(self.fallback.clone());
        }
        urls
    }

    /// Whether Redis answers.
    pub async fn check(&self) -> bool {
        self.instances().await.is_some()
    }

    /// All processes; `None` when Redis does not answer in time.
    async fn instances(&self) -> Option<Vec<Instance>> {
        let called = tokio::time::timeout(self.patience, self.read()).await;
        match called {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => self.broken(&error.to_string()),
            Err(_) => self.broken("no answer in time"),
        }
    }

    fn broken(&self, why: &str) -> Option<Vec<Instance>> {
        // When somebody else holds the link, that call will notice too.
        if let Ok(mut link) = self.link.try_lock() {
            if link.broken_at.is_none() {
                tracing::warn!(why, "Redis is away; sessions go to [gateway].inference_url");
            }
            *link = Link { connection: None, broken_at: Some(Instant::now()) };
        }
        None
    }

    /// `None` while Redis is left alone.
    async fn read(&self) -> redis::RedisResult<Option<Vec<Instance>>> {
        let Some(mut connection) = self.connection().await? else { return Ok(None) };
        let mut keys = Vec::new();
        {
            let mut found = connection.scan_match::<_, String>(PATTERN).await?;
            while let Some(key) = found.next_item().await {
                keys.push(key?);
            }
        }
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let values: Vec<Option<String>> = connection.mget(&keys).await?;
        Ok(Some(values.into_iter().flatten().filter_map(|v| serde_json::from_str(&v).ok()).collect()))
    }

    async fn connection(&self) -> redis::RedisResult<Option<MultiplexedConnection>> {
        let mut link = self.link.lock().await;
        if link.broken_at.is_some_and(|at| at.elapsed() < BREAK) {
            return Ok(None);
        }
        if let Some(connection) = &link.connection {
            return Ok(Some(connection.clone()));
        }
        let connection = self.client.get_multiplexed_async_connection().await?;
        *link = Link { connection: Some(connection.clone()), broken_at: None };
        Ok(Some(connection))
    }
}
