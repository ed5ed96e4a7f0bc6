//! What travels: tagged, versioned, ids only.

use serde::{Deserialize, Serialize};

use domain::JobId;
use domain::job::JobKind;

/// "Look at this job."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum JobEnvelope {
    /// First version.
    #[serde(rename = "job.v1")]
    V1 {
        /// The job.
        job_id: JobId,
        /// Its kind.
        kind: JobKind,
        /// W3C trace context of the request that made the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<String>,
    },
}

/// "This happened."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum EventEnvelope {
    /// First version.
    #[serde(rename = "event.v1")]
    V1 {
        /// The job.
        job_id: JobId,
        /// Its newest event.
        seq: i64,
    },
}
