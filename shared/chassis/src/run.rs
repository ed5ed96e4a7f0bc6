//! From `main` to shutdown.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use futures::future::BoxFuture;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use artifacts::Artifacts;
use bus::Bus;
use store::{Store, StoreOptions};

use crate::handler::JobHandler;
use crate::health::{self, HealthState, ReadyCheck};
use crate::heartbeat::Heartbeats;
use crate::settings::{
    Amqp, ArtifactsSettings, Database, Health, Settings, Sweeper, Telemetry, WorkerSettings, seconds,
};
use crate::worker::Worker;
use crate::{relay, sweeper, telemetry};

/// What a service is given to build itself from.
#[derive(Debug, Clone)]
pub struct Boot {
    /// Name of the service.
    pub name: &'static str,
    /// All settings.
    pub settings: Settings,
    /// The database; migrated.
    pub store: Store,
    /// The broker.
    pub bus: Arc<Bus>,
    /// The files.
    pub artifacts: Artifacts,
    /// Cancelled on SIGTERM and SIGINT.
    pub shutdown: CancellationToken,
}

/// What a service does.
#[derive(Default)]
pub struct Service {
    handlers: Vec<Arc<dyn JobHandler>>,
    tasks: Vec<Task>,
    checks: Vec<ReadyCheck>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("handlers", &self.handlers.len())
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Works on jobs of the handler's kind.
    #[must_use]
    pub fn handle(mut self, handler: impl JobHandler) -> Self {
        self.handlers.push(Arc::new(handler));
        self
    }
    /// Runs a task beside the workers until shutdown; its end before that stops the process.
    #[must_use]
    pub fn task(
        mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> Self {
        self.tasks.push((name, Box::pin(task)));
        self
    }
    /// Adds a hard dependency to `/health/ready`.
    #[must_use]
    pub fn ready_check(mut self, check: ReadyCheck) -> Self {
        self.checks.push(check);
        self
    }
}

/// Runs a service until SIGTERM or SIGINT. `<service> healthcheck` asks a running one instead and exits 0 when it lives.
pub fn run<F, Fut>(name: &'static str, build: F) -> ExitCode
where
    F: FnOnce(Boot) -> Fut,
    Fut: Future<Output = anyhow::Result<Service>>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(name, &error.into()),
    };
    let done = if std::env::args().nth(1).as_deref() == Some("healthcheck") {
        runtime.block_on(ask())
    } else {
        runtime.block_on(serve(name, build))
    };
    // Blocking threads that ignore the stop must not keep the process.
    runtime.shutdown_timeout(seconds(1));
    done.map_or_else(|error| fail(name, &error), |()| ExitCode::SUCCESS)
}

/// Runs a program that is no service: settings and telemetry, no database and no broker.
pub fn run_tool(name: &'static str, work: impl FnOnce(Settings) -> anyhow::Result<()>) -> ExitCode {
    let done = Settings::load().map_err(anyhow::Error::from).and_then(|settings| {
        telemetry::start(&settings.section::<Telemetry>("telemetry")?);
        work(settings)
    });
    done.map_or_else(|error| fail(name, &error), |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "the last words of a process that could not start its telemetry")]
fn fail(name: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{name}: {error:#}");
    ExitCode::FAILURE
}

async fn ask() -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let health: Health = Settings::load()?.section("health")?;
    let mut stream =
        tokio::net::TcpStream::connect(("127.0.0.1", health.port)).await.context("health port")?;
    stream.write_all(b"GET /health/live HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    anyhow::ensure!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "not alive");
    Ok(())
}

async fn serve<F, Fut>(name: &'static str, build: F) -> anyhow::Result<()>
where
    F: FnOnce(Boot) -> Fut,
    Fut: Future<Output = anyhow::Result<Service>>,
{
    let settings = Settings::load()?;
    telemetry::start(&settings.section::<Telemetry>("telemetry")?);
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(
            Matcher::Full("ppx_frame_step_seconds".into()),
            &[0.005, 0.01, 0.02, 0.04, 0.06, 0.07, 0.08, 0.1, 0.16],
        )?
        .install_recorder()?;
    let options = store_options(&settings)?;
    let store = Store::open(&options)?;
    let amqp: Amqp = settings.section("amqp")?;
    let bus = Arc::new(Bus::new(amqp.url.expose_secret(), seconds(amqp.timeout_seconds))?);
    let artifacts = Artifacts::open(&settings.section::<ArtifactsSettings>("artifacts")?.root)?;
    let shutdown = stop_on_signal()?;
    let boot = Boot {
        name,
        settings: settings.clone(),
        store: store.clone(),
        bus: Arc::clone(&bus),
        artifacts,
        shutdown: shutdown.clone(),
    };
    let service = build(boot.clone()).await?;
    let state = HealthState {
        service: name,
        store: store.clone(),
        bus: Arc::clone(&bus),
        checks: service.checks.clone(),
        metrics,
        shutdown: shutdown.clone(),
    };
    let health = tokio::spawn(health::serve(&settings.section("health")?, state)?);
    let relay = tokio::spawn(relay::run(store.clone(), Arc::clone(&bus), shutdown.clone()));
    let sweeper =
        tokio::spawn(sweeper::run(store.clone(), settings.section::<Sweeper>("sweeper")?, shutdown.clone()));
    let beats_end = CancellationToken::new();
    let mut tasks = service.tasks;
    tasks.extend(workers(&boot, &options, &service.handlers, &beats_end)?);
    tracing::info!(service = name, "started");
    let ended = run_tasks(tasks, &shutdown).await;
    beats_end.cancel();
    relay.await?;
    sweeper.await?;
    health.abort();
    store.close().await;
    tracing::info!(service = name, "stopped");
    ended
}

/// How the settings reach the database.
pub(crate) fn store_options(settings: &Settings) -> anyhow::Result<StoreOptions> {
    let database: Database = settings.section("database")?;
    Ok(StoreOptions {
        url: database.url.expose_secret().to_owned(),
        max_connections: database.max_connections,
        acquire_timeout: seconds(database.acquire_timeout_seconds),
        statement_timeout: seconds(database.statement_timeout_seconds),
    })
}

type Task = (&'static str, BoxFuture<'static, anyhow::Result<()>>);

/// The loops of every handler, and the heartbeat thread that they share.
fn workers(
    boot: &Boot,
    options: &StoreOptions,
    handlers: &[Arc<dyn JobHandler>],
    end: &CancellationToken,
) -> anyhow::Result<Vec<Task>> {
    if handlers.is_empty() {
        return Ok(Vec::new());
    }
    let settings: WorkerSettings = boot.settings.section("worker")?;
    let heartbeats = Heartbeats::default();
    heartbeats.spawn(
        options,
        seconds(settings.heartbeat_seconds),
        seconds(settings.lease_seconds),
        end.clone(),
    )?;
    let owner = format!("{}-{}-{}", boot.name, std::process::id(), uuid::Uuid::new_v4().as_simple());
    let worker = |handler: &Arc<dyn JobHandler>| Worker {
        handler: Arc::clone(handler),
        store: boot.store.clone(),
        bus: Arc::clone(&boot.bus),
        artifacts: boot.artifacts.clone(),
        heartbeats: heartbeats.clone(),
        settings: settings.clone(),
        owner: owner.clone(),
        shutdown: boot.shutdown.clone(),
    };
    let task = |handler: &Arc<dyn JobHandler>| -> Task {
        let work = worker(handler).work();
        let until_shutdown = async move {
            work.await;
            Ok(())
        };
        (handler.kind().as_str(), Box::pin(until_shutdown))
    };
    let each = settings.concurrency.max(1);
    Ok(handlers.iter().flat_map(|h| std::iter::repeat_n(h, each)).map(task).collect())
}

/// Waits for the signal, or for the first task that ends before it.
async fn run_tasks(tasks: Vec<Task>, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let mut set = tokio::task::JoinSet::new();
    for (name, task) in tasks {
        set.spawn(async move { task.await.with_context(|| format!("task {name}")) });
    }
    let first = tokio::select! {
        () = shutdown.cancelled() => None,
        Some(ended) = set.join_next() => Some(ended),
    };
    shutdown.cancel();
    let mut outcome = first.map_or(Ok(()), |ended| ended?.context("ended before the signal"));
    while let Some(ended) = set.join_next().await {
        outcome = outcome.and(ended?);
    }
    outcome
}

fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = token.clone();
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("stopping");
        stop.cancel();
    });
    Ok(token)
}
