//! The resources of the API, one short method for each call.

use serde_json::{Value, json};
use url::Url;

use domain::dataset::{DatasetFile, DatasetSpec};
use domain::event::JobEvent;
use domain::preflight::{Acknowledge, Preflight};
use domain::run::MetricPoint;
use domain::{ComparisonId, DatasetId, EvaluationId, JobId, ModelId, RunId, SessionId};

use crate::error::{ClientError, Result};
use crate::http::Client;
use crate::views::{
    ComparisonView, DatasetView, EvaluationView, JobView, List, ModelView, NewSession, RunView, ScoreView,
    SessionView, VoiceView,
};

/// Rows of one page when a list is wanted whole.
const PAGE: u32 = 100;

fn page(limit: u32) -> [(&'static str, String); 2] {
    [("limit", limit.to_string()), ("order", "desc".to_owned())]
}

impl Client {
    /// Asks for a dataset.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_dataset(&self, name: &str, spec: &DatasetSpec) -> Result<DatasetView> {
        let mut body = serde_json::to_value(spec).map_err(|source| shape("/v1/datasets", source))?;
        body["name"] = json!(name);
        self.post("/v1/datasets", &body).await
    }

    /// One dataset.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dataset(&self, id: DatasetId) -> Result<DatasetView> {
        self.get(&format!("/v1/datasets/{id}"), &[]).await
    }

    /// The newest datasets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn datasets(&self, limit: u32) -> Result<List<DatasetView>> {
        self.get("/v1/datasets", &page(limit)).await
    }

    /// The dataset of this id, or of this name: the last version, or with `name@3` the third.
    ///
    /// # Errors
    /// `Usage` when there is none; see [`ClientError`].
    pub async fn find_dataset(&self, id_or_name: &str) -> Result<DatasetView> {
        if let Ok(id) = id_or_name.parse() {
            return self.dataset(id).await;
        }
        let [limit, order] = page(PAGE);
        let query = [limit, order, ("name", id_or_name.to_owned())];
        let versions: List<DatasetView> = self.get("/v1/datasets", &query).await?;
        let found = versions.data.into_iter().max_by_key(|d| d.version);
        found.ok_or_else(|| missing("dataset", id_or_name))
    }

    /// Files of a published dataset.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dataset_files(&self, id: DatasetId) -> Result<List<DatasetFile>> {
        self.get(&format!("/v1/datasets/{id}/files"), &[]).await
    }

    /// Bytes of one published file.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dataset_file(&self, id: DatasetId, path: &str) -> Result<Vec<u8>> {
        self.download(&format!("/v1/datasets/{id}/files"), &[("path", path.to_owned())]).await
    }

    /// One job.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn job(&self, id: JobId) -> Result<JobView> {
        self.get(&format!("/v1/jobs/{id}"), &[]).await
    }

    /// The newest jobs that match; empty filters match all. `subject` is the id of a dataset, run, ….
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn jobs(&self, kind: &str, state: &str, subject: &str, limit: u32) -> Result<List<JobView>> {
        let filters = [("kind", kind), ("state", state), ("subject", subject)];
        let filters = filters.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k, v.to_owned()));
        let query: Vec<_> = page(limit).into_iter().chain(filters).collect();
        self.get("/v1/jobs", &query).await
    }

    /// Asks a job to stop.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel_job(&self, id: JobId) -> Result<JobView> {
        self.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await
    }

    /// Events of a job after `after_seq`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn job_events(&self, id: JobId, after_seq: i64) -> Result<List<JobEvent>> {
        self.get(&format!("/v1/jobs/{id}/events"), &[("after_seq", after_seq.to_string())]).await
    }

    /// Registers the model directory `path` below the server's import folder.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register_model(&self, name: &str, path: &str) -> Result<ModelView> {
        self.post("/v1/models", &json!({ "name": name, "path": path })).await
    }

    /// The model of this id or name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn model(&self, id_or_name: &str) -> Result<ModelView> {
        self.get(&format!("/v1/models/{}", segment(id_or_name)?), &[]).await
    }

    /// The newest models.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn models(&self, limit: u32) -> Result<List<ModelView>> {
        self.get("/v1/models", &page(limit)).await
    }

    /// Starts a training; `spec` holds the fields that differ from the defaults. Warnings of the check that are not
    /// acknowledged keep it from starting.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_run(
        &self,
        name: &str,
        dataset: DatasetId,
        base_model: &str,
        spec: &Value,
        acknowledge: &Acknowledge,
    ) -> Result<RunView> {
        let body = json!({ "name": name, "dataset_id": dataset, "base_model": base_model, "spec": spec,
            "acknowledge": acknowledge });
        self.post("/v1/runs", &body).await
    }

    /// Checks a training without starting it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn check_run(
        &self,
        name: &str,
        dataset: DatasetId,
        base_model: &str,
        spec: &Value,
    ) -> Result<Preflight> {
        let body = json!({ "name": name, "dataset_id": dataset, "base_model": base_model, "spec": spec });
        self.post("/v1/runs?dry_run=true", &body).await
    }

    /// One training.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn training_run(&self, id: RunId) -> Result<RunView> {
        self.get(&format!("/v1/runs/{id}"), &[]).await
    }

    /// Checkpoints that a training has kept, by step.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn run_checkpoints(&self, id: RunId) -> Result<List<Value>> {
        self.get(&format!("/v1/runs/{id}/checkpoints"), &[]).await
    }

    /// Asks a training to `cancel`, `pause` or `resume`; returns it as it is then.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn steer_training(&self, id: RunId, action: &str) -> Result<RunView> {
        self.post(&format!("/v1/runs/{id}/{action}"), &json!({})).await
    }

    /// The newest trainings.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn training_runs(&self, limit: u32) -> Result<List<RunView>> {
        self.get("/v1/runs", &page(limit)).await
    }

    /// Numbers of a training in step order; an empty name reads all metrics.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn run_metrics(&self, id: RunId, name: &str) -> Result<List<MetricPoint>> {
        let query = if name.is_empty() { Vec::new() } else { vec![("name", name.to_owned())] };
        self.get(&format!("/v1/runs/{id}/metrics"), &query).await
    }

    /// Voices.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn voices(&self) -> Result<List<VoiceView>> {
        self.get("/v1/voices", &page(PAGE)).await
    }

    /// Opens a session; the answer holds its ticket.
    ///
    /// A ticket is told once: where the first answer was lost and a repeated send found the session made already, a second
    /// session is opened, and the first expires unused.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_session(&self, new: &NewSession) -> Result<SessionView> {
        let session: SessionView = self.post("/v1/sessions", new).await?;
        if session.ticket.is_some() || session.url.is_some() {
            return Ok(session);
        }
        self.post("/v1/sessions", new).await
    }

    /// One session.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn session(&self, id: SessionId) -> Result<SessionView> {
        self.get(&format!("/v1/sessions/{id}"), &[]).await
    }

    /// Websocket address of a session that this client just created.
    ///
    /// # Errors
    /// `Usage` when the view has no socket path (it was not the creating answer).
    pub fn socket_url(&self, session: &SessionView) -> Result<Url> {
        let path = match (&session.url, &session.ticket) {
            (Some(path), _) => path.clone(),
            (None, Some(ticket)) => format!("/api/chat?ticket={ticket}"),
            (None, None) => {
                return Err(ClientError::Usage(format!(
                    "session {} was opened elsewhere: no ticket",
                    session.id
                )));
            }
        };
        let mut url = self.url(&path)?;
        url.set_scheme("ws").map_err(|()| ClientError::BadUrl { url: url.to_string() })?;
        Ok(url)
    }

    /// Asks for an evaluation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_evaluation(
        &self,
        name: &str,
        dataset: DatasetId,
        model: &str,
        spec: &Value,
    ) -> Result<EvaluationView> {
        let body = json!({ "name": name, "dataset_id": dataset, "model": model, "spec": spec });
        self.post("/v1/evaluations", &body).await
    }

    /// One evaluation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn evaluation(&self, id: EvaluationId) -> Result<EvaluationView> {
        self.get(&format!("/v1/evaluations/{id}"), &[]).await
    }

    /// Numbers of an evaluation by dialogue.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn evaluation_scores(&self, id: EvaluationId) -> Result<List<ScoreView>> {
        self.get(&format!("/v1/evaluations/{id}/scores"), &[]).await
    }

    /// The evaluation of this id, or the newest of this name among the newest hundred.
    ///
    /// # Errors
    /// `Usage` when there is none; see [`ClientError`].
    pub async fn find_evaluation(&self, id_or_name: &str) -> Result<EvaluationView> {
        if let Ok(id) = id_or_name.parse() {
            return self.evaluation(id).await;
        }
        let list: List<EvaluationView> = self.get("/v1/evaluations", &page(PAGE)).await?;
        let found = list.data.into_iter().find(|e| e.name == id_or_name);
        found.ok_or_else(|| missing("evaluation", id_or_name))
    }

    /// Asks for a comparison of two evaluations.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create_comparison(
        &self,
        name: &str,
        baseline: EvaluationId,
        candidate: EvaluationId,
    ) -> Result<ComparisonView> {
        let body = json!({ "name": name, "baseline_id": baseline, "candidate_id": candidate });
        self.post("/v1/comparisons", &body).await
    }

    /// One comparison.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn comparison(&self, id: ComparisonId) -> Result<ComparisonView> {
        self.get(&format!("/v1/comparisons/{id}"), &[]).await
    }

    /// A report of a finished comparison: `report.json` or `report.html`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn comparison_report(&self, id: ComparisonId, file: &str) -> Result<Vec<u8>> {
        self.download(&format!("/v1/comparisons/{id}/{file}"), &[]).await
    }

    /// The name of the model with this id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn model_by_id(&self, id: ModelId) -> Result<ModelView> {
        self.model(&id.to_string()).await
    }
}

fn shape(path: &str, source: serde_json::Error) -> ClientError {
    ClientError::Shape { path: path.into(), source }
}

fn missing(noun: &str, name: &str) -> ClientError {
    ClientError::Problem(Box::new(crate::Problem {
        title: "No such resource".into(),
        status: 404,
        detail: format!("no {noun} is named {name:?}"),
        code: domain::ErrorCode::NotFound.as_str().into(),
        ..crate::Problem::default()
    }))
}

/// A name as one path segment.
fn segment(text: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || !text.chars().all(plain) || text.chars().all(|c| c == '.') {
        return Err(ClientError::Usage(format!(
            "{text:?} is no id or name: letters, digits, '.', '_' and '-'"
        )));
    }
    Ok(text.to_owned())
}
