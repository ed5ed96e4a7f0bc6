//! The entry in Redis by which the gateway finds this process. Losing it hurts nobody: the gateway then uses its
//! configured address.

use std::time::Duration;

use chassis::CancellationToken;
use chassis::secrecy::ExposeSecret;
use domain::ModelId;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// Time between two writes.
const BEAT: Duration = Duration::from_secs(3);
/// Life of an entry, seconds.
const TTL_SECONDS: u64 = 10;
/// Nothing waits for this task, so it may be more patient than a request.
const PATIENCE: Duration = Duration::from_secs(1);

/// What stands under `ppx:inference:{instance}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Base URL of the internal listener.
    pub url: String,
    /// Places free a moment ago.
    pub free_slots: usize,
    /// Models and adapters that are loaded.
    pub models: Vec<ModelId>,
}

/// Writes the entry until shutdown.
pub struct Registry {
    client: redis::Client,
    connection: Option<MultiplexedConnection>,
    key: String,
    url: String,
}

impl Registry {
    /// An entry for this process.
    ///
    /// # Errors
    /// When the Redis URL cannot be parsed.
    pub fn new(settings: &chassis::settings::Redis, url: String) -> anyhow::Result<Self> {
        let client = redis::Client::open(settings.url.expose_secret())
            .map_err(|_| anyhow::anyhow!("[redis].url cannot be parsed: expected redis://host:port/db"))?;
        let key = format!("ppx:inference:{}", uuid::Uuid::new_v4().as_simple());
        Ok(Self { client, connection: None, key, url })
    }

    /// Writes the entry every few seconds; removes it at shutdown.
    ///
    /// # Errors
    /// Never; failures are only noted.
    pub async fn announce(mut self, engine: Engine, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = beat.tick() => {}
            }
            let models = engine.models().await.unwrap_or_default().into_iter().map(|m| m.id).collect();
            let entry = Entry { url: self.url.clone(), free_slots: engine.free_places(), models };
            let mut set = redis::cmd("SET");
            set.arg(&self.key).arg(serde_json::to_string(&entry)?).arg("EX").arg(TTL_SECONDS);
            self.send(&set).await;
        }
        let mut del = redis::cmd("DEL");
        del.arg(&self.key);
        self.send(&del).await;
        Ok(())
    }

    async fn send(&mut self, command: &redis::Cmd) {
        let sent = tokio::time::timeout(PATIENCE, async {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.client.get_multiplexed_async_connection().await?,
            };
            let () = command.query_async(&mut connection).await?;
            self.connection = Some(connection);
            Ok::<_, redis::RedisError>(())
        });
        match sent.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "redis refused the registry entry"),
            Err(_) => tracing::debug!("redis did not answer in time"),
        }
    }
}
