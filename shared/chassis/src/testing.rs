//! Workers, relay, sweeper and heartbeat in this process, for tests of handlers.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use artifacts::Artifacts;
use bus::Bus;
use store::{Store, StoreOptions};

use crate::handler::JobHandler;
use crate::heartbeat::Heartbeats;
use crate::settings::{Sweeper, WorkerSettings};
use crate::worker::Worker;
use crate::{relay, sweeper};

/// Running workers with short times.
#[derive(Debug)]
pub struct Harness {
    /// Where the handlers' files are.
    pub artifacts: Artifacts,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    beats_end: CancellationToken,
}

/// Starts them on a database and a broker of the test's own; files go to a folder of the process.
///
/// # Errors
/// When the folder or the heartbeat thread cannot be made.
pub fn spawn(
    database_url: &str,
    store: Store,
    bus: Arc<Bus>,
    handlers: Vec<Arc<dyn JobHandler>>,
) -> anyhow::Result<Harness> {
    let settings = WorkerSettings {
        concurrency: 1,
        lease_seconds: 10,
        heartbeat_seconds: 1,
        poll_seconds: 5,
        drain_seconds: 5,
        retry_seconds: 1,
    };
    let options = StoreOptions {
        url: database_url.to_owned(),
        max_connections: 2,
        acquire_timeout: Duration::from_secs(3),
        statement_timeout: Duration::from_secs(10),
    };
    let root = std::env::temp_dir().join(format!("ppx-harness-{}", uuid::Uuid::new_v4().as_simple()));
    let artifacts = Artifacts::open(&root)?;
    let (shutdown, beats_end) = (CancellationToken::new(), CancellationToken::new());
    let heartbeats = Heartbeats::default();
    heartbeats.spawn(&options, Duration::from_secs(1), Duration::from_secs(10), beats_end.clone())?;
    let mut tasks = vec![
        tokio::spawn(relay::run(store.clone(), Arc::clone(&bus), shutdown.clone())),
        tokio::spawn(sweeper::run(
            store.clone(),
            Sweeper { interval_seconds: 1, ring_after_seconds: 60, max_live_seconds: 7200 },
            shutdown.clone(),
        )),
    ];
    for handler in handlers {
        let worker = Worker {
            handler,
            store: store.clone(),
            bus: Arc::clone(&bus),
            artifacts: artifacts.clone(),
            heartbeats: heartbeats.clone(),
            settings: settings.clone(),
            owner: "harness".into(),
            shutdown: shutdown.clone(),
        };
        tasks.push(tokio::spawn(worker.work()));
    }
    Ok(Harness { artifacts, shutdown, tasks, beats_end })
}

impl Harness {
    /// Stops as a process does on SIGTERM; returns when everything is down.
    pub async fn stop(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the harness panicked");
            }
        }
        self.beats_end.cancel();
        if let Ok(root) = self.artifacts.local_path("x") {
            let removed = root.parent().map(std::fs::remove_dir_all);
            tracing::debug!(?removed, "harness files");
        }
    }
}
