//! A gateway of one's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use artifacts::Artifacts;
use bus::Bus;
use chassis::{Boot, CancellationToken, Completion, Settings};
use domain::DatasetId;
use domain::dataset::DatasetSummary;
use domain::job::{JobKind, JobSpec};
use gateway::auth::key;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use store::{Store, StoreOptions, leases};
use testkit::{TestBus, TestDb, TestRedis};

pub const INTERNAL_TOKEN: &str = "internal-token-canary-5512";

/// A running gateway and everything behind it.
pub struct Gateway {
    pub base: String,
    pub key: String,
    pub store: Store,
    pub artifacts: Artifacts,
    pub import: std::path::PathBuf,
    pub db: TestDb,
    pub redis: TestRedis,
    pub http: reqwest::Client,
    shutdown: CancellationToken,
    running: Option<tokio::task::JoinHandle<Result<()>>>,
    _bus: TestBus,
    _dir: tempfile::TempDir,
}

impl Gateway {
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// With more settings, as `PPX__SECTION__KEY` and value.
    pub async fn start_with(more: &[(&str, &str)]) -> Result<Self> {
        let (db, bus, redis) = (TestDb::new().await?, TestBus::new().await?, TestRedis::new()?);
        let dir = tempfile::tempdir()?;
        let import = dir.path().join("import");
        std::fs::create_dir_all(&import)?;
        let key = key::generate("test").text;
        let mut env: HashMap<String, String> = [
            ("PPX__REDIS__URL", redis.url()),
            ("PPX__GATEWAY__PORT", "0"),
            ("PPX__AUTH__BOOTSTRAP_KEY", &key),
            ("PPX__ARTIFACTS__IMPORT_DIR", import.to_str().context("UTF-8")?),
            ("PPX__INTERNAL__TOKEN", INTERNAL_TOKEN),
            ("PPX__GATEWAY__SSE_HEARTBEAT_SECONDS", "1"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let options = StoreOptions {
            url: more
                .iter()
                .find(|(k, _)| *k == "PPX__DATABASE__URL")
                .map_or(db.url(), |(_, v)| v)
                .to_owned(),
            max_connections: 8,
            acquire_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
        };
        let store = Store::open(&options)?;
        let artifacts = Artifacts::open(&dir.path().join("artifacts"))?;
        let shutdown = CancellationToken::new();
        let boot = Boot {
            name: "gateway",
            settings: Settings::from_layers(None, env)?,
            store: store.clone(),
            bus: Arc::new(Bus::new(bus.url(), Duration::from_secs(2))?),
            artifacts: artifacts.clone(),
            shutdown: shutdown.clone(),
        };
        let app = gateway::App::build(&boot).await?;
        let base = format!("http://127.0.0.1:{}", app.port());
        let running = Some(tokio::spawn(app.run()));
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self {
            base,
            key,
            store,
            artifacts,
            import,
            db,
            redis,
            http,
            shutdown,
            running,
            _bus: bus,
            _dir: dir,
        })
    }

    /// A request with the bootstrap key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.key)
    }

    /// A request without a key.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        Answer::read(self.request(Method::GET, path).send().await?).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        Answer::read(self.request(Method::POST, path).json(body).send().await?).await
    }

    /// Plays the workers for every job that is ready, with empty results.
    pub async fn work_off_datasets(&self) -> Result<()> {
        self.work_off_datasets_as(summary()).await
    }

    /// The same, with these facts of what was built.
    pub async fn work_off_datasets_as(&self, summary: DatasetSummary) -> Result<()> {
        let lease = Duration::from_secs(30);
        for kind in [JobKind::Generate, JobKind::Render, JobKind::Align, JobKind::Assemble] {
            while let Some(job) = leases::claim_next(&self.store, kind, "test", lease).await? {
                let done = match job.spec {
                    JobSpec::Generate { dataset_id, .. } => {
                        Completion::Generated { dataset: dataset_id, dialogues: vec![] }
                    }
                    JobSpec::Render { dataset_id, .. } => {
                        Completion::Rendered { dataset: dataset_id, renders: vec![], voices: vec![] }
                    }
                    JobSpec::Align { dataset_id, .. } => {
                        Completion::Aligned { dataset: dataset_id, alignments: vec![] }
                    }
                    JobSpec::Assemble { dataset_id } => Completion::Assembled {
                        dataset: dataset_id,
                        summary: summary.clone(),
                        splits: vec![],
                    },
                    other => anyhow::bail!("no dataset job: {other:?}"),
                };
                leases::finish(&self.store, job.claim, done).await?;
            }
        }
        Ok(())
    }

    /// A published dataset with two files.
    pub async fn published_dataset(&self, name: &str) -> Result<DatasetId> {
        let body = json!({"name": name, "domain": "insurance_brokerage", "dialogues": 4});
        let made = self.post("/v1/datasets", &body).await?;
        anyhow::ensure!(made.status == 201, "{made:?}");
        let id: DatasetId = made.body["id"].as_str().context("id")?.parse()?;
        let folder = format!("datasets/{id}/published");
        let mut files = Vec::new();
        for (path, text) in [("dataset/train.jsonl", "{\"path\":\"x\"}\n"), ("rejects.jsonl", "")] {
            let mut file = self.artifacts.put(&format!("{folder}/{path}"), text).await?;
            file.path = path.into();
            files.push(file);
        }
        self.artifacts.put_json(&format!("{folder}/dataset.json"), &json!({"files": files})).await?;
        self.work_off_datasets().await?;
        Ok(id)
    }

    /// Registers the tiny model.
    pub async fn tiny_model(&self, name: &str) -> Result<Value> {
        let folder = self.import.join(name);
        weights::init_model(&folder, "tiny", 1)?;
        let made = self.post("/v1/models", &json!({"name": name, "path": name})).await?;
        anyhow::ensure!(made.status == 201, "{made:?}");
        Ok(made.body)
    }

    /// Stops the gateway as SIGTERM does and waits for its end.
    pub async fn stop(&mut self) -> Result<()> {
        self.shutdown.cancel();
        self.running.take().context("stopped once")?.await?
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub fn summary() -> DatasetSummary {
    DatasetSummary {
        train_dialogues: 3,
        eval_dialogues: 1,
        rejected_dialogues: 0,
        audio_s: 10.0,
        words: 10,
        injections: 1,
        content_sha256: "00".repeat(32),
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    pub body: Value,
}

impl Answer {
    pub async fn read(response: Response) -> Result<Self> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Self { status, headers, text, body })
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("")
    }

    /// Fails unless this is a well-formed problem of this status and code.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.body["status"], status, "{}", self.text);
        assert_eq!(self.body["type"], format!("urn:plexforge:problem:{code}"));
        let instance = self.body["instance"].as_str().unwrap_or("");
        assert!(instance.len() == 32 && instance.chars().any(|c| c != '0'), "{}", self.text);
        for member in ["title", "detail", "errors", "retryable"] {
            assert!(!self.body[member].is_null(), "{member} is missing: {}", self.text);
        }
        assert!(!self.header("x-request-id").is_empty());
    }

    /// Pointers of the faulty fields.
    pub fn pointers(&self) -> Vec<&str> {
        self.body["errors"].as_array().into_iter().flatten().filter_map(|e| e["pointer"].as_str()).collect()
    }

    pub fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap_or("")
    }
}
