//! The loop around a handler: take a doorbell, claim the row, acknowledge at once, run, finish.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use artifacts::Artifacts;
use bus::{Bus, JobEnvelope};
use domain::ErrorCode;
use store::completion::Completion;
use store::leases::{self, ClaimedJob};
use store::{Store, StoreError};

use crate::handler::{JobContext, JobError, JobHandler, Signals, Stop};
use crate::heartbeat::Heartbeats;
use crate::settings::{WorkerSettings, seconds};
use crate::telemetry::TraceContext;

/// One loop that does jobs of one kind, one after the other.
pub struct Worker {
    pub(crate) handler: Arc<dyn JobHandler>,
    pub(crate) store: Store,
    pub(crate) bus: Arc<Bus>,
    pub(crate) artifacts: Artifacts,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) settings: WorkerSettings,
    /// Name of the process in `lease_owner`.
    pub(crate) owner: String,
    pub(crate) shutdown: CancellationToken,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("kind", &self.handler.kind()).finish_non_exhaustive()
    }
}

impl Worker {
    /// Works until shutdown.
    pub(crate) async fn work(self) {
        while !self.shutdown.is_cancelled() {
            match self.next().await {
                Ok(Some(job)) => self.run(job).await,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, job.kind = self.handler.kind().as_str(), "cannot look for work");
                    self.pause(Duration::from_secs(1)).await;
                }
            }
        }
    }

    async fn pause(&self, time: Duration) {
        self.shutdown.run_until_cancelled(tokio::time::sleep(time)).await;
    }

    /// The next claimed job: by doorbell, or from the table when the bell is silent or broken.
    async fn next(&self) -> Result<Option<ClaimedJob>, StoreError> {
        let kind = self.handler.kind();
        let lease = seconds(self.settings.lease_seconds);
        let poll = seconds(self.settings.poll_seconds);
        let Some(rung) = self.shutdown.run_until_cancelled(self.bus.take(kind, poll)).await else {
            return Ok(None);
        };
        match rung {
            Ok(Some(bell)) => {
                let JobEnvelope::V1 { job_id, .. } = bell.envelope;
                let claimed = leases::claim(&self.store, job_id, &self.owner, lease).await?;
                if let Err(error) = bell.acknowledge().await {
                    tracing::debug!(%error, job.id = %job_id, "acknowledgement lost; the doorbell will ring once more");
                }
                Ok(claimed)
            }
            Ok(None) => leases::claim_next(&self.store, kind, &self.owner, lease).await,
            Err(error) => {
                tracing::debug!(%error, "no broker; looking at the table");
                self.pause(Duration::from_millis(500)).await;
                if self.shutdown.is_cancelled() {
                    return Ok(None);
                }
                leases::claim_next(&self.store, kind, &self.owner, lease).await
            }
        }
    }

    async fn run(&self, job: ClaimedJob) {
        let kind = self.handler.kind();
        let trace =
            job.traceparent.as_deref().and_then(TraceContext::parse).unwrap_or_else(TraceContext::generate);
        let span = tracing::info_span!(
            "job",
            job.id = %job.claim.job,
            job.kind = kind.as_str(),
            job.attempt = job.claim.attempt,
            trace.id = trace.trace_id()
        );
        let started = std::time::Instant::now();
        async {
            tracing::info!("job started");
            let outcome = self.attempt(&job).await;
            self.settle(&job, outcome).await;
        }
        .instrument(span)
        .await;
        metrics::histogram!("ppx_job_attempt_seconds", "kind" => kind.as_str()).record(started.elapsed());
    }

    async fn attempt(&self, job: &ClaimedJob) -> Result<Completion, JobError> {
        let signals = Arc::new(Signals::default());
        let _beat = self.heartbeats.start(job.claim, Arc::clone(&signals));
        let ctx = JobContext {
            store: self.store.clone(),
            artifacts: self.artifacts.clone(),
            claim: job.claim,
            signals: Arc::clone(&signals),
            last_progress: Arc::default(),
        };
        let work = AssertUnwindSafe(self.handler.run(&ctx, job.spec.clone())).catch_unwind();
        tokio::pin!(work);
        let caught = tokio::select! {
            caught = &mut work => caught,
            () = self.shutdown.cancelled() => {
                signals.draining.store(true, Ordering::Relaxed);
                match tokio::time::timeout(seconds(self.settings.drain_seconds), work).await {
                    Ok(caught) => caught,
                    Err(_elapsed) => return Err(JobError::Stopped(Stop::Draining)),
                }
            }
        };
        caught.unwrap_or_else(|panic| {
            Err(JobError::permanent(
                ErrorCode::Internal,
                format!("the handler panicked: {}", reason(&*panic)),
            ))
        })
    }

    /// Writes the outcome. While the database is away this tries until the lease would be lost anyway.
    async fn settle(&self, job: &ClaimedJob, outcome: Result<Completion, JobError>) {
        let deadline = std::time::Instant::now() + seconds(self.settings.lease_seconds);
        loop {
            let written = self.write(job, &outcome).await;
            match written {
                Ok(()) => return,
                Err(StoreError::LeaseLost { .. }) => {
                    tracing::warn!("the job was taken over; the result of this attempt is dropped");
                    return;
                }
                Err(StoreError::Unavailable(error)) if std::time::Instant::now() < deadline => {
                    tracing::warn!(%error, "cannot write the outcome yet");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot write the outcome");
                    let error = JobError::from(error);
                    let retry =
                        matches!(error, JobError::Transient(..)).then(|| self.back_off(job.claim.attempt));
                    let failure = error.failure();
                    if let Err(error) = leases::fail(&self.store, job.claim, &failure, retry).await {
                        tracing::error!(%error, "cannot record the failure; the sweeper will take the job up");
                    }
                    return;
                }
            }
        }
    }

    async fn write(
        &self,
        job: &ClaimedJob,
        outcome: &Result<Completion, JobError>,
    ) -> Result<(), StoreError> {
        match outcome {
            Ok(done) => {
                leases::finish(&self.store, job.claim, done.clone()).await?;
                tracing::info!("job succeeded");
                metrics::counter!("ppx_jobs_total", "kind" => self.handler.kind().as_str(), "outcome" => "succeeded").increment(1);
                Ok(())
            }
            Err(JobError::Stopped(Stop::LeaseLost)) => {
                Err(StoreError::LeaseLost { job: job.claim.job, attempt: job.claim.attempt })
            }
            Err(JobError::Stopped(Stop::Cancelled)) => {
                leases::finish_cancelled(&self.store, job.claim).await?;
                tracing::info!("job cancelled");
                Ok(())
            }
            Err(JobError::Stopped(Stop::Draining | Stop::Paused)) => {
                leases::hand_back(&self.store, job.claim).await?;
                tracing::info!("job handed back");
                Ok(())
            }
            Err(error) => {
                let failure = error.failure();
                let retry =
                    matches!(error, JobError::Transient(..)).then(|| self.back_off(job.claim.attempt));
                tracing::warn!(code = %failure.code, detail = %failure.detail, ?retry, "job attempt failed");
                leases::fail(&self.store, job.claim, &failure, retry).await
            }
        }
    }

    fn back_off(&self, attempt: i32) -> Duration {
        let doublings = u32::try_from(attempt.clamp(1, 7) - 1).unwrap_or(0);
        seconds(self.settings.retry_seconds) * 2u32.pow(doublings)
    }
}

fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
