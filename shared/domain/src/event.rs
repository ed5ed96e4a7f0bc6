//! What happened: the content of SSE streams and, later, of webhooks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// One event of a job; `seq` counts from 1 without gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobEvent {
    /// The job.
    pub job_id: JobId,
    /// Position in the job's history.
    pub seq: i64,
    /// `job.queued`, `job.started`, `job.progress`, `job.alarm`, `job.retrying`, `job.pausing`, `job.paused`, `job.resumed`, `job.cancelling`, `job.succeeded`, `job.failed`, `job.cancelled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Facts of the event.
    pub data: serde_json::Value,
    /// When it was recorded.
    pub created_at: DateTime<Utc>,
}
