//! Leases are renewed from a thread of its own: a handler that blocks every runtime thread does not lose its job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::JobId;
use domain::job::JobState;
use store::leases::{self, Claim};
use store::{Store, StoreError, StoreOptions};
use tokio_util::sync::CancellationToken;

use crate::handler::Signals;

/// The claims that are being worked on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heartbeats {
    active: Arc<Mutex<HashMap<JobId, Beat>>>,
}

#[derive(Debug, Clone)]
struct Beat {
    claim: Claim,
    signals: Arc<Signals>,
    renewed: Instant,
}

/// Ends the renewal when dropped.
pub(crate) struct BeatGuard {
    active: Arc<Mutex<HashMap<JobId, Beat>>>,
    claim: Claim,
}

impl Drop for BeatGuard {
    fn drop(&mut self) {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if active.get(&self.claim.job).is_some_and(|b| b.claim == self.claim) {
            active.remove(&self.claim.job);
        }
    }
}

impl Heartbeats {
    /// Renews this claim until the guard is dropped.
    pub(crate) fn start(&self, claim: Claim, signals: Arc<Signals>) -> BeatGuard {
        let beat = Beat { claim, signals, renewed: Instant::now() };
        self.active.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.job, beat);
        BeatGuard { active: Arc::clone(&self.active), claim }
    }

    /// Starts the thread; it has its own runtime and its own two connections.
    pub(crate) fn spawn(
        &self,
        options: &StoreOptions,
        every: Duration,
        lease: Duration,
        stop: CancellationToken,
    ) -> anyhow::Result<std::thread::JoinHandle<()>> {
        let options = StoreOptions { max_connections: 2, ..options.clone() };
        let this = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            runtime.block_on(async {
                let Ok(store) = Store::open(&options) else { return };
                while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
                    this.beat(&store, lease).await;
                }
            });
        })?)
    }

    async fn beat(&self, store: &Store, lease: Duration) {
        let beats: Vec<Beat> =
            self.active.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for beat in beats {
            match leases::heartbeat(store, beat.claim, lease).await {
                Ok(JobState::Cancelling) => beat.signals.cancel(),
                Ok(JobState::Pausing) => beat.signals.pause(),
                Ok(_) => {}
                Err(StoreError::LeaseLost { .. }) => {
                    tracing::warn!(job.id = %beat.claim.job, job.attempt = beat.claim.attempt, "lease lost");
                    beat.signals.lose();
                }
                Err(error) => {
                    tracing::warn!(job.id = %beat.claim.job, %error, "heartbeat failed");
                    if beat.renewed.elapsed() > lease {
                        beat.signals.lose();
                    }
                    continue;
                }
            }
            if let Some(b) =
                self.active.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&beat.claim.job)
            {
                b.renewed = Instant::now();
            }
        }
    }
}
