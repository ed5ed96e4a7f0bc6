//! The rows of live sessions in Redis: 34 bytes a frame, all that another process needs to go on with a conversation.
//!
//! They are written about once a second by a task of its own and expire by themselves. Without Redis nothing is kept: a
//! session that is taken up again then starts from its prompt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::secrecy::ExposeSecret;
use domain::SessionId;
use personaplex::Frame;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Mutex, mpsc};

use crate::engine::{Conversation, Rows};

/// Time between two writes of a session.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for Redis where somebody waits for the answer.
const PATIENCE: Duration = Duration::from_millis(300);
/// Bytes of a row: 17 ids of 16 bits.
const ROW_BYTES: usize = 34;
/// Writes of a session that may wait.
const WAITING: usize = 2;

/// Rows by session.
#[derive(Clone)]
pub struct RowStore {
    client: redis::Client,
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    /// Life of what is written; zero = nothing is.
    life: Duration,
}

fn keys(id: SessionId) -> (String, String) {
    (format!("ppx:rows:{id}"), format!("ppx:rows:{id}:open"))
}

impl RowStore {
    /// Rows that live for `life` after their last write.
    ///
    /// # Errors
    /// When the Redis URL cannot be parsed.
    pub fn new(settings: &chassis::settings::Redis, life: Duration) -> anyhow::Result<Self> {
        let client = redis::Client::open(settings.url.expose_secret())
            .map_err(|_| anyhow::anyhow!("[redis].url cannot be parsed: expected redis://host:port/db"))?;
        Ok(Self { client, connection: Arc::default(), life })
    }

    /// The rows of an interrupted conversation, if any are kept.
    pub(crate) async fn load(&self, id: SessionId) -> Option<Vec<Frame>> {
        if self.life.is_zero() {
            return None;
        }
        let (complete, open) = keys(id);
        let mut ask = redis::pipe();
        ask.lrange(&complete, 0, -1).get(&open);
        let (chunks, open): (Vec<Vec<u8>>, Option<Vec<u8>>) = self.call(&ask).await?;
        let bytes: Vec<u8> = chunks.into_iter().chain(open).flatten().collect();
        let rows = decode(&bytes)?;
        (!rows.is_empty()).then_some(rows)
    }

    /// Lets go of a session that is over.
    pub(crate) async fn forget(&self, id: SessionId) {
        if !self.life.is_zero() {
            let (complete, open) = keys(id);
            let mut ask = redis::pipe();
            ask.del(&complete).ignore().del(&open).ignore();
            let _: Option<()> = self.call(&ask).await;
        }
    }

    async fn write(&self, id: SessionId, rows: &Rows) -> Option<()> {
        let (complete, open) = keys(id);
        let mut ask = redis::pipe();
        ask.atomic();
        if rows.first == 0 {
            ask.del(&complete).ignore();
        }
        if !rows.complete.is_empty() {
            ask.rpush(&complete, encode(&rows.complete)).ignore();
        }
        let seconds = i64::try_from(self.life.as_secs().max(1)).unwrap_or(i64::MAX);
        ask.set(&open, encode(&rows.open)).ignore();
        ask.expire(&complete, seconds).ignore().expire(&open, seconds).ignore();
        self.call(&ask).await
    }

    /// Redis may be away: then there is no answer.
    async fn call<T: redis::FromRedisValue>(&self, ask: &redis::Pipeline) -> Option<T> {
        let called = tokio::time::timeout(PATIENCE, async {
            let mut link = self.connection.lock().await;
            let mut connection = match link.take() {
                Some(connection) => connection,
                None => self.client.get_multiplexed_async_connection().await?,
            };
            // Put back only after an answer: a broken connection is not used again.
            let answer: T = ask.query_async(&mut connection).await?;
            *link = Some(connection);
            Ok::<_, redis::RedisError>(answer)
        });
        match called.await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                tracing::debug!(%error, "redis refused the rows of a session");
                None
            }
            Err(_) => None,
        }
    }
}

fn encode(rows: &[Frame]) -> Vec<u8> {
    // Ids go from -2 to 32,000.
    rows.iter().flatten().flat_map(|id| i16::try_from(*id).unwrap_or(-2).to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Option<Vec<Frame>> {
    let (rows, rest) = bytes.as_chunks::<ROW_BYTES>();
    let id = |pair: &[u8; 2]| i32::from(i16::from_le_bytes(*pair));
    let row = |row: &[u8; ROW_BYTES]| {
        let mut frame = [0; 17];
        for (to, pair) in frame.iter_mut().zip(row.as_chunks::<2>().0) {
            *to = id(pair);
        }
        frame
    };
    rest.is_empty().then(|| rows.iter().map(row).collect())
}

/// Keeps the rows of one session up to date.
pub(super) struct Keeper {
    writes: Option<mpsc::Sender<Rows>>,
    /// Rows handed over so far.
    since: usize,
    kept_at: Instant,
}

impl Keeper {
    pub(super) fn new(id: SessionId, store: RowStore) -> Self {
        let writes = (!store.life.is_zero()).then(|| {
            let (writes, mut waiting) = mpsc::channel::<Rows>(WAITING);
            tokio::spawn(async move {
                while let Some(rows) = waiting.recv().await {
                    store.write(id, &rows).await;
                }
            });
            writes
        });
        Self { writes, since: 0, kept_at: Instant::now() }
    }

    pub(super) fn is_due(&self) -> bool {
        self.kept_at.elapsed() >= KEEP_EVERY
    }

    /// Hands new rows to the writer; when that is behind they go with the next ones.
    pub(super) async fn keep(&mut self, conversation: &Conversation) {
        self.kept_at = Instant::now();
        let Some(writes) = &self.writes else { return };
        let Ok(room) = writes.try_reserve() else { return };
        if let Ok(rows) = conversation.rows(self.since).await {
            self.since = rows.first + rows.complete.len();
            room.send(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_their_bytes_and_half_a_row_is_nothing() {
        let rows: Vec<Frame> = vec![[-2; 17], std::array::from_fn(|n| n as i32 * 2_000)];
        let bytes = encode(&rows);
        assert_eq!(bytes.len(), 68);
        assert_eq!(decode(&bytes), Some(rows));
        assert_eq!(decode(&bytes[..67]), None);
    }
}
