//! One subscription to the bus wakes every stream; the streams read the history themselves, so a lost wake-up loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::{Bus, EventEnvelope};
use chassis::CancellationToken;
use domain::JobId;
use tokio::sync::broadcast;

/// Wake-ups kept for a slow stream; one that falls behind simply reads the history.
const BACKLOG: usize = 256;
/// Time between looks at the history while the bus is away.
const POLL_WITHOUT_BUS: Duration = Duration::from_secs(1);
/// The same while the bus works: only against lost messages.
const POLL_WITH_BUS: Duration = Duration::from_secs(5);

/// Tells streams which job has news.
#[derive(Debug)]
pub struct Hub {
    news: broadcast::Sender<JobId>,
    listening: AtomicBool,
}

impl Default for Hub {
    fn default() -> Self {
        Self { news: broadcast::Sender::new(BACKLOG), listening: AtomicBool::new(false) }
    }
}

impl Hub {
    /// Listens to the bus until shutdown; subscribes anew after an outage.
    pub async fn run(self: Arc<Self>, bus: Arc<Bus>, shutdown: CancellationToken) {
        shutdown
            .run_until_cancelled(async {
                loop {
                    if let Err(error) = self.listen(&bus).await {
                        tracing::debug!(%error, "no events from the bus; streams poll");
                    }
                    self.listening.store(false, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            })
            .await;
    }

    async fn listen(&self, bus: &Bus) -> bus::Result<()> {
        let mut events = bus.events().await?;
        self.listening.store(true, Ordering::Relaxed);
        loop {
            let EventEnvelope::V1 { job_id, .. } = events.next().await?;
            // No receiver is no error: nobody streams.
            let _ = self.news.send(job_id);
        }
    }

    /// Wake-ups from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<JobId> {
        self.news.subscribe()
    }

    /// How long a stream may wait before it looks at the history itself.
    #[must_use]
    pub fn patience(&self) -> Duration {
        if self.listening.load(Ordering::Relaxed) { POLL_WITH_BUS } else { POLL_WITHOUT_BUS }
    }
}
