//! Jobs: the durable unit of work that the services share.

use serde::{Deserialize, Serialize};

use crate::ids::{ComparisonId, DatasetId, EvaluationId, RunId};

/// What a job does; one queue and one handler each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Write dialogues of a dataset (datagen).
    Generate,
    /// Render dialogues to speech (tts).
    Render,
    /// Time the words and route to stereo (align).
    Align,
    /// Check, split and publish the dataset (dataset).
    Assemble,
    /// Read a dataset made elsewhere and publish it (dataset).
    Import,
    /// Train adapters and merge them (trainer).
    Train,
    /// Play eval dialogues against a model (evaluation).
    Evaluate,
    /// Compare two evaluations pairwise (evaluation).
    Compare,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Generate,
        Self::Render,
        Self::Align,
        Self::Assemble,
        Self::Import,
        Self::Train,
        Self::Evaluate,
        Self::Compare,
    ];

    /// Name in the database, in routing keys and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Render => "render",
            Self::Align => "align",
            Self::Assemble => "assemble",
            Self::Import => "import",
            Self::Train => "train",
            Self::Evaluate => "evaluate",
            Self::Compare => "compare",
        }
    }
}

impl std::str::FromStr for JobKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|k| k.as_str() == text).ok_or_else(|| format!("{text:?} is no job kind"))
    }
}

/// State of a job. Terminal states never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for a worker, or for the jobs it needs.
    Queued,
    /// A worker holds the lease.
    Running,
    /// Cancel was asked for; the worker will notice.
    Cancelling,
    /// A pause was asked for (training).
    Pausing,
    /// Stopped with a checkpoint; may be queued again (training).
    Paused,
    /// Done.
    Succeeded,
    /// Gave up; see the error.
    Failed,
    /// Stopped on request.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Cancelling,
        Self::Pausing,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Whether `self -> next` is a legal step.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Queued, Self::Running | Self::Cancelled | Self::Failed)
                | (
                    Self::Running,
                    Self::Queued | Self::Cancelling | Self::Pausing | Self::Succeeded | Self::Failed | Self::Cancelled
                )
                // Work that finishes before it sees the request keeps its result.
                | (Self::Cancelling, Self::Cancelled | Self::Succeeded | Self::Failed)
                | (Self::Pausing, Self::Paused | Self::Cancelling | Self::Succeeded | Self::Failed)
                | (Self::Paused, Self::Queued | Self::Cancelled)
        )
    }
}

impl std::str::FromStr for JobState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| format!("{text:?} is no job state"))
    }
}

/// A half-open range of design rows: the part of a dataset that one job works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RowRange {
    /// First row.
    pub from: u32,
    /// One past the last row.
    pub to: u32,
}

impl RowRange {
    /// The rows in order.
    pub fn rows(self) -> std::ops::Range<u32> {
        self.from..self.to
    }
    /// Cuts `0..total` into ranges of at most `size` rows.
    #[must_use]
    pub fn shards(total: u32, size: u32) -> Vec<Self> {
        let size = size.max(1);
        (0..total.div_ceil(size)).map(|i| Self { from: i * size, to: ((i + 1) * size).min(total) }).collect()
    }
}

/// The work of a job: names the rows to work on, never holds the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobSpec {
    /// Write the dialogues of these design rows.
    Generate {
        /// The dataset being built.
        dataset_id: DatasetId,
        /// Its rows.
        rows: RowRange,
    },
    /// Render them.
    Render {
        /// The dataset being built.
        dataset_id: DatasetId,
        /// Its rows.
        rows: RowRange,
    },
    /// Align them.
    Align {
        /// The dataset being built.
        dataset_id: DatasetId,
        /// Its rows.
        rows: RowRange,
    },
    /// Publish the dataset.
    Assemble {
        /// The dataset being built.
        dataset_id: DatasetId,
    },
    /// Import the dataset.
    Import {
        /// The dataset with what to import.
        dataset_id: DatasetId,
    },
    /// Train.
    Train {
        /// The run with its specification.
        run_id: RunId,
    },
    /// Evaluate.
    Evaluate {
        /// The evaluation with its specification.
        evaluation_id: EvaluationId,
    },
    /// Compare.
    Compare {
        /// The comparison with its two sides.
        comparison_id: ComparisonId,
    },
}

impl JobSpec {
    /// Kind of the job.
    #[must_use]
    pub const fn kind(&self) -> JobKind {
        match self {
            Self::Generate { .. } => JobKind::Generate,
            Self::Render { .. } => JobKind::Render,
            Self::Align { .. } => JobKind::Align,
            Self::Assemble { .. } => JobKind::Assemble,
            Self::Import { .. } => JobKind::Import,
            Self::Train { .. } => JobKind::Train,
            Self::Evaluate { .. } => JobKind::Evaluate,
            Self::Compare { .. } => JobKind::Compare,
        }
    }

    /// Typed id of the resource that the job works for, as text.
    #[must_use]
    pub fn subject(&self) -> String {
        match self {
            Self::Generate { dataset_id, .. }
            | Self::Render { dataset_id, .. }
            | Self::Align { dataset_id, .. }
            | Self::Assemble { dataset_id }
            | Self::Import { dataset_id } => dataset_id.to_string(),
            Self::Train { run_id } => run_id.to_string(),
            Self::Evaluate { evaluation_id } => evaluation_id.to_string(),
            Self::Compare { comparison_id } => comparison_id.to_string(),
        }
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
    /// What is counted: `dialogues`, `steps`.
    pub unit: String,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobFailure {
    /// Stable code.
    pub code: crate::ErrorCode,
    /// For the reader: what was wrong, where, what was expected.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_never_change() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in JobState::ALL {
                assert!(!from.may_become(to), "{from:?} -> {to:?}");
            }
        }
    }

    #[test]
    fn shards_cover_every_row_once() {
        for total in 0..40 {
            for size in 1..9 {
                let rows: Vec<u32> =
                    RowRange::shards(total, size).into_iter().flat_map(RowRange::rows).collect();
                assert_eq!(rows, (0..total).collect::<Vec<_>>());
            }
        }
    }
}
