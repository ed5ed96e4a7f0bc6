//! A listener of our own with a database, files and a tiny model; everything goes away with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use artifacts::Artifacts;
use audio::Waveform;
use chassis::settings::Redis;
use chassis::{CancellationToken, Settings};
use domain::dataset::DatasetFile;
use domain::session::{SamplingParams, SessionOptions, SessionPace};
use domain::{ModelId, SessionId};
use inference::engine::Engine;
use inference::prepare::Catalog;
use inference::puppeteers::Puppeteers;
use inference::session::rows::RowStore;
use inference::{InferenceSettings, ws};
use store::Store;
use store::models::NewModel;
use store::sessions::{NewSession, Session};
use store::voices::NewVoice;
use testkit::TestDb;
use weights::ModelConfig;

pub const TOKEN: &str = "a-token-of-this-test";
pub const VOICE: &str = "tone";

/// Files of one tiny model, and its row when there is a database.
pub struct Files {
    _dir: tempfile::TempDir,
    pub artifacts: Artifacts,
}

impl Files {
    pub fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let artifacts = Artifacts::open(dir.path())?;
        Ok(Self { _dir: dir, artifacts })
    }

    pub fn model(&self, seed: u64) -> Result<NewModel> {
        self.model_of(&ModelConfig::preset("tiny")?, seed)
    }

    pub fn model_of(&self, config: &ModelConfig, seed: u64) -> Result<NewModel> {
        let id = ModelId::generate();
        let prefix = format!("models/{id}");
        let dir = self.artifacts.local_path(&prefix)?;
        std::fs::create_dir_all(dir.parent().context("has a parent")?)?;
        let info = weights::init_model_with(&dir, config, weights::preset_tokenizer("tiny")?, seed)?;
        let file = |f: &weights::FileInfo| DatasetFile {
            path: format!("{prefix}/{}", f.name),
            bytes: f.bytes,
            sha256: f.sha256.clone(),
        };
        let files = info.files.iter().map(file).collect();
        Ok(NewModel { id, name: id.to_string(), kind: "base", prefix, files, base_id: None, run_id: None })
    }
}

/// Two seconds of a quiet tone.
pub fn tone() -> Vec<f32> {
    (0..48_000).map(|n| (n as f32 * 0.07).sin() * 0.05).collect()
}

pub fn settings(changes: &[(&str, &str)]) -> Result<InferenceSettings> {
    let named = |(k, v): &(&str, &str)| (format!("PPX__INFERENCE__{k}"), (*v).to_owned());
    let mut environment: HashMap<String, String> = changes.iter().map(named).collect();
    environment.insert("PPX__INFERENCE__PORT".into(), "0".into());
    Ok(Settings::from_layers(None, environment)?.section("inference")?)
}

/// An engine with its listener.
pub struct Process {
    pub engine: Engine,
    pub address: std::net::SocketAddr,
    pub shutdown: CancellationToken,
    pub server: tokio::task::JoinHandle<Result<()>>,
}

impl Process {
    fn start(
        store: &Store,
        files: &Files,
        changes: &[(&str, &str)],
        redis: &Redis,
        resume_seconds: u64,
    ) -> Result<Self> {
        let settings = settings(changes)?;
        let engine = Engine::start(&settings)?;
        let shutdown = CancellationToken::new();
        let sessions = chassis::settings::Sessions { resume_seconds };
        let puppeteer = Settings::from_layers(None, HashMap::new())?.section("puppeteer")?;
        let shared = Arc::new(ws::Shared {
            catalog: Catalog::new(store.clone(), files.artifacts.clone()).with_rows(settings.rows()),
            store: store.clone(),
            engine: engine.clone(),
            token: TOKEN.into(),
            live: ws::LiveSessions::default(),
            sessions,
            rows: RowStore::new(redis, sessions.resume_for())?,
            puppeteers: Puppeteers::new(store.clone(), puppeteer)?,
            shutdown: shutdown.clone(),
            settings,
        });
        let listener = ws::listen("127.0.0.1", 0)?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(ws::serve(listener, shared));
        Ok(Self { engine, address, shutdown, server })
    }
}

pub struct House {
    _db: TestDb,
    pub store: Store,
    pub files: Files,
    pub model: NewModel,
    pub engine: Engine,
    pub address: std::net::SocketAddr,
    pub shutdown: CancellationToken,
    server: tokio::task::JoinHandle<Result<()>>,
}

impl House {
    /// Opens with settings changed from the defaults.
    pub async fn open(changes: &[(&str, &str)]) -> Result<Self> {
        let db = TestDb::new().await?;
        let store = Store::from_pool(db.pool().await?);
        let files = Files::new()?;
        let model = files.model(7)?;
        let wav = audio::wav::encode_pcm16(&Waveform::mono(24_000, tone()))?;
        let file = files.artifacts.put("voices/tone.wav", wav).await?;
        let voice = NewVoice {
            name: VOICE.into(),
            artifact: file.path,
            sha256: file.sha256,
            duration_ms: 2_000,
            source: "upload".into(),
        };
        let mut tx = store.begin().await?;
        store::models::insert(&mut tx, &model).await?;
        store::voices::ensure(&mut tx, &voice).await?;
        tx.commit().await?;
        let redis = Redis { url: "redis://127.0.0.1:1/".into(), timeout_ms: 50 };
        let process = Process::start(&store, &files, changes, &redis, 0)?;
        let Process { engine, address, shutdown, server } = process;
        Ok(Self { _db: db, store, files, model, engine, address, shutdown, server })
    }

    /// Another process that serves the same sessions and keeps their rows for half a minute.
    pub fn process(&self, redis: &str) -> Result<Process> {
        let redis = Redis { url: redis.into(), timeout_ms: 50 };
        Process::start(&self.store, &self.files, &[], &redis, 30)
    }

    pub async fn session(&self, text_prompt: &str, sampling: SamplingParams) -> Result<SessionId> {
        self.session_of(self.model.id, text_prompt, sampling).await
    }

    pub async fn session_of(
        &self,
        model_id: ModelId,
        text_prompt: &str,
        sampling: SamplingParams,
    ) -> Result<SessionId> {
        let options = SessionOptions { pace: SessionPace::Audio, ..SessionOptions::default() };
        self.session_with(model_id, text_prompt, sampling, options).await
    }

    pub async fn session_with(
        &self,
        model_id: ModelId,
        text_prompt: &str,
        sampling: SamplingParams,
        options: SessionOptions,
    ) -> Result<SessionId> {
        let id = SessionId::generate();
        let new = NewSession {
            id,
            model_id,
            voice: Some(VOICE.into()),
            text_prompt: text_prompt.into(),
            sampling,
            options,
            ticket_sha256: id.to_string().into_bytes(),
            ticket_ttl_s: 60,
        };
        let mut tx = self.store.begin().await?;
        store::sessions::insert(&mut tx, &new).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// The row once the session has ended.
    pub async fn ended(&self, id: SessionId) -> Result<Session> {
        testkit::wait_for("the session's row ends", Duration::from_secs(15), async || {
            let row = store::sessions::get(&self.store, id).await.ok()?;
            row.ended_at.is_some().then_some(row)
        })
        .await
    }

    pub async fn all_places_free(&self, places: usize, within: Duration) -> Result<()> {
        testkit::wait_until("every place is free", within, async || self.engine.free_places() == places).await
    }

    /// Stops the listener and gives its outcome.
    pub async fn close(self) -> Result<()> {
        self.shutdown.cancel();
        self.server.await?
    }
}
