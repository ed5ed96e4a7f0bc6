//! What the API answers, as this client reads it. Fields that this version does not know are ignored.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use domain::dataset::{DatasetFile, DatasetSpec, DatasetSummary, ImportSpec};
use domain::job::{JobKind, JobState, Progress};
use domain::session::{SamplingParams, SessionPace, SessionState, SessionStats};
use domain::{ComparisonId, DatasetId, EvaluationId, JobId, ModelId, RunId, SessionId, VoiceId};

/// One page of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List<T> {
    /// The rows.
    pub data: Vec<T>,
    /// Whether another page follows.
    #[serde(default)]
    pub has_more: bool,
    /// Cursor for `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<String>,
}

/// Why a job failed; the code is open, for servers newer than this client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable code.
    pub code: String,
    /// For the reader.
    #[serde(default)]
    pub detail: String,
}

/// A job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobView {
    /// Id.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// What it works on.
    #[serde(default)]
    pub spec: Value,
    /// State.
    pub state: JobState,
    /// Tries so far.
    #[serde(default)]
    pub attempt: i64,
    /// Jobs it still waits for.
    #[serde(default)]
    pub pending_needs: i64,
    /// How far it is.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// What it left.
    #[serde(default)]
    pub result: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<Failure>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When a worker first took it.
    #[serde(default)]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default)]
    pub finished_at: Option<DateTime<Utc>>,
}

/// A dataset.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DatasetView {
    /// Id.
    pub id: DatasetId,
    /// Name.
    pub name: String,
    /// Number among the datasets of this name.
    pub version: u32,
    /// What is built.
    pub spec: DatasetSpec,
    /// What is imported; none for a dataset that is generated.
    #[serde(default)]
    pub import: Option<ImportSpec>,
    /// State of the whole build.
    pub state: JobState,
    /// Jobs done.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Facts, once published.
    #[serde(default)]
    pub summary: Option<DatasetSummary>,
    /// The job that publishes it.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it was published.
    #[serde(default)]
    pub published_at: Option<DateTime<Utc>>,
}

/// A servable model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelView {
    /// Id.
    pub id: ModelId,
    /// Name.
    pub name: String,
    /// `base` or `merged`.
    pub kind: String,
    /// Its files.
    #[serde(default)]
    pub files: Vec<DatasetFile>,
    /// Base of a merged model.
    #[serde(default)]
    pub base_id: Option<ModelId>,
    /// Run that made it.
    #[serde(default)]
    pub run_id: Option<RunId>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

/// A training.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunView {
    /// Id.
    pub id: RunId,
    /// Name.
    pub name: String,
    /// What it trains on.
    pub dataset_id: DatasetId,
    /// What it starts from.
    pub base_model_id: ModelId,
    /// How.
    #[serde(default)]
    pub spec: Value,
    /// State.
    pub state: JobState,
    /// Its job.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// The merged model, once there.
    #[serde(default)]
    pub model_id: Option<ModelId>,
    /// Losses, steps and speed, once done.
    #[serde(default)]
    pub summary: Option<Value>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

/// A voice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VoiceView {
    /// Id.
    pub id: VoiceId,
    /// Name that sessions use.
    pub name: String,
    /// Length.
    #[serde(default)]
    pub duration_ms: i64,
    /// Engine that made it, or `upload`.
    #[serde(default)]
    pub source: String,
}

/// A session to open.
#[derive(Debug, Clone, Serialize)]
pub struct NewSession {
    /// Id or name of the model.
    pub model: String,
    /// Registered voice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// The brief, without tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_prompt: Option<String>,
    /// How tokens are drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingParams>,
    /// The clock.
    pub pace: SessionPace,
}

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionView {
    /// Id.
    pub id: SessionId,
    /// State.
    pub state: SessionState,
    /// Model.
    pub model_id: ModelId,
    /// Secret of the socket; only in the answer that created the session.
    #[serde(default, skip_serializing)]
    pub ticket: Option<String>,
    /// Path of the socket with the ticket; only in the answer that created the session.
    #[serde(default, skip_serializing)]
    pub url: Option<String>,
    /// Measured facts, once ended.
    #[serde(default)]
    pub stats: Option<SessionStats>,
    /// Why it ended.
    #[serde(default)]
    pub close_reason: Option<String>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// An evaluation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EvaluationView {
    /// Id.
    pub id: EvaluationId,
    /// Name.
    pub name: String,
    /// Where its dialogues come from.
    pub dataset_id: DatasetId,
    /// What it judges.
    pub model_id: ModelId,
    /// State.
    pub state: JobState,
    /// Its job.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// Aggregates, once done.
    #[serde(default)]
    pub summary: Option<Value>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

/// Numbers of one played dialogue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScoreView {
    /// Record id.
    pub dialogue: String,
    /// Metric to value.
    pub metrics: BTreeMap<String, f64>,
}

/// A paired comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComparisonView {
    /// Id.
    pub id: ComparisonId,
    /// Name.
    pub name: String,
    /// State.
    pub state: JobState,
    /// Its job.
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// Verdicts by metric, once done.
    #[serde(default)]
    pub summary: Option<Value>,
    /// Path of the JSON report.
    #[serde(default)]
    pub report_json_url: Option<String>,
    /// Path of the HTML report.
    #[serde(default)]
    pub report_html_url: Option<String>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}
