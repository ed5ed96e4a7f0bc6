//! What a service implements to do jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use artifacts::{Artifacts, ArtifactsError};
use domain::job::{JobFailure, JobKind, JobSpec, Progress};
use domain::{ErrorCode, JobId};
use store::completion::Completion;
use store::leases::{self, Claim};
use store::{Store, StoreError};

/// A kind of job. `run` may be called again for the same job after a crash: outputs are written under the attempt and
/// become visible only through the returned [`Completion`], in the transaction that ends the job.
#[async_trait]
pub trait JobHandler: Send + Sync + 'static {
    /// The kind it handles.
    fn kind(&self) -> JobKind;

    /// Does the work.
    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError>;
}

/// Why a job did not end with a result.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// May work next time: tried again with back-off while attempts are left.
    #[error("{0:?}: {1}")]
    Transient(ErrorCode, String),
    /// Will not work however often it is tried.
    #[error("{0:?}: {1}")]
    Permanent(ErrorCode, String),
    /// The handler saw that it should stop ([`JobContext::check`]) and left nothing half done.
    #[error("stopped: {0:?}")]
    Stopped(Stop),
}

/// Why a running job should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Somebody cancelled it.
    Cancelled,
    /// Another worker has it: nothing we write counts.
    LeaseLost,
    /// The process is going down; the job goes back to the queue.
    Draining,
    /// Somebody paused it: what is done is to be kept.
    Paused,
}

impl Stop {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Cancelled, Self::LeaseLost, Self::Draining, Self::Paused];
}

impl JobError {
    /// A permanent failure with a detail for the reader.
    pub fn permanent(code: ErrorCode, detail: impl std::fmt::Display) -> Self {
        Self::Permanent(code, detail.to_string())
    }
    /// A failure worth another try.
    pub fn transient(code: ErrorCode, detail: impl std::fmt::Display) -> Self {
        Self::Transient(code, detail.to_string())
    }
    pub(crate) fn failure(&self) -> JobFailure {
        match self {
            Self::Transient(code, detail) | Self::Permanent(code, detail) => {
                JobFailure { code: *code, detail: detail.clone() }
            }
            Self::Stopped(stop) => {
                JobFailure { code: ErrorCode::Internal, detail: format!("stopped: {stop:?}") }
            }
        }
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::LeaseLost { .. } => Self::Stopped(Stop::LeaseLost),
            StoreError::Unavailable(_) => Self::Transient(ErrorCode::Unavailable, error.to_string()),
            StoreError::NotFound { .. } => Self::Permanent(ErrorCode::NotFound, error.to_string()),
            StoreError::NameTaken { .. } => Self::Permanent(ErrorCode::NameTaken, error.to_string()),
            other => Self::Permanent(ErrorCode::Internal, other.to_string()),
        }
    }
}

impl From<ArtifactsError> for JobError {
    fn from(error: ArtifactsError) -> Self {
        match error {
            ArtifactsError::NotFound(_) | ArtifactsError::Damaged { .. } | ArtifactsError::Json { .. } => {
                Self::Permanent(ErrorCode::ArtifactDamaged, error.to_string())
            }
            ArtifactsError::BadKey(_) => Self::Permanent(ErrorCode::Internal, error.to_string()),
            ArtifactsError::Io { .. } | ArtifactsError::Store(_) => {
                Self::Transient(ErrorCode::Unavailable, error.to_string())
            }
        }
    }
}

/// Signals between the heartbeat and the handler.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    stop: AtomicU8,
    paused: AtomicBool,
    pub(crate) draining: AtomicBool,
}

impl Signals {
    pub(crate) fn cancel(&self) {
        self.stop.fetch_max(1, Ordering::Relaxed);
    }
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }
    pub(crate) fn lose(&self) {
        self.stop.fetch_max(2, Ordering::Relaxed);
    }
}

/// What a handler may use while it works; cheap to clone, also into blocking threads.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// The database.
    pub store: Store,
    /// The files.
    pub artifacts: Artifacts,
    /// The right to the job; fences every write.
    pub claim: Claim,
    pub(crate) signals: Arc<Signals>,
    pub(crate) last_progress: Arc<std::sync::Mutex<Option<Instant>>>,
}

impl JobContext {
    /// A context without a worker around it: drives a handler directly, in tests and tools. Nothing renews its lease.
    #[must_use]
    pub fn new(store: Store, artifacts: Artifacts, claim: Claim) -> Self {
        Self { store, artifacts, claim, signals: Arc::default(), last_progress: Arc::default() }
    }

    /// The job.
    #[must_use]
    pub const fn job_id(&self) -> JobId {
        self.claim.job
    }

    /// Whether and why to stop.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        match self.signals.stop.load(Ordering::Relaxed) {
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::LeaseLost),
            _ if self.signals.paused.load(Ordering::Relaxed) => Some(Stop::Paused),
            _ if self.signals.draining.load(Ordering::Relaxed) => Some(Stop::Draining),
            _ => None,
        }
    }

    /// For short work: fails when the job was cancelled or lost; a process that goes down lets short work end.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn check(&self) -> Result<(), JobError> {
        match self.stop() {
            Some(stop @ (Stop::Cancelled | Stop::LeaseLost)) => Err(JobError::Stopped(stop)),
            Some(Stop::Draining | Stop::Paused) | None => Ok(()),
        }
    }

    /// Records progress; at most twice a second is written, the last unit always.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn progress(&self, done: u64, total: u64, unit: &str) -> Result<(), JobError> {
        {
            let mut last = self.last_progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if done < total && last.is_some_and(|t| t.elapsed() < Duration::from_millis(500)) {
                return Ok(());
            }
            *last = Some(Instant::now());
        }
        leases::progress(&self.store, self.claim, &Progress { done, total, unit: unit.into() }).await?;
        Ok(())
    }

    /// Tells whoever follows the job that a person should look at something.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn alarm(&self, alarm: &serde_json::Value) -> Result<(), JobError> {
        Ok(leases::alarm(&self.store, self.claim, alarm).await?)
    }

    /// Artifact folder of this attempt below `prefix`: a later attempt never overwrites what an earlier one left.
    #[must_use]
    pub fn attempt_prefix(&self, prefix: &str) -> String {
        format!("{prefix}/{}-{}", self.claim.job, self.claim.attempt)
    }
}
