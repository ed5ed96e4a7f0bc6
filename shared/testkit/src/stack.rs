//! A running stack of our own programs, for system tests.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::broker::tail;
use crate::{TestBus, TestDb, TestRedis, binary, free_port, http, workspace_root};

const READY_DEADLINE: Duration = Duration::from_secs(60);

/// What to start; see [`Stack::builder`].
#[derive(Debug, Default)]
pub struct StackBuilder {
    services: Vec<String>,
    everywhere: Vec<(String, String)>,
    one: Vec<(String, String, String)>,
    amqp_url: Option<String>,
}

impl StackBuilder {
    /// The programs to start, in this order; each is the name of a binary. A `gateway` migrates the database first.
    #[must_use]
    pub fn services(mut self, names: &[&str]) -> Self {
        self.services.extend(names.iter().map(ToString::to_string));
        self
    }

    /// One more environment variable for one service.
    #[must_use]
    pub fn env(mut self, service: &str, key: &str, value: impl Into<String>) -> Self {
        self.one.push((service.into(), key.into(), value.into()));
        self
    }

    /// One more environment variable for all of them.
    #[must_use]
    pub fn env_all(mut self, key: &str, value: impl Into<String>) -> Self {
        self.everywhere.push((key.into(), value.into()));
        self
    }

    /// A broker of the test's own instead of a vhost of the shared one.
    #[must_use]
    pub fn amqp_url(mut self, url: impl Into<String>) -> Self {
        self.amqp_url = Some(url.into());
        self
    }

    /// Starts everything and waits until each service says that it is ready.
    pub async fn start(self) -> Result<Stack> {
        let bus = if self.amqp_url.is_none() { Some(TestBus::new().await?) } else { None };
        let amqp_url = self.amqp_url.clone().or_else(|| bus.as_ref().map(|bus| bus.url().to_owned()));
        let mut stack = Stack {
            services: BTreeMap::new(),
            // The template is migrated already; `gateway migrate` below then finds nothing to do.
            database: TestDb::new().await?,
            redis: TestRedis::new()?,
            amqp_url: amqp_url.context("either given or made")?,
            _bus: bus,
            dir: tempfile::Builder::new().prefix("ppx-stack-").tempdir()?,
            gateway_port: free_port()?,
            sessions_port: free_port()?,
            api_key: String::new(),
        };
        std::fs::create_dir_all(stack.artifacts_root())?;
        std::fs::create_dir_all(stack.import_dir())?;
        if self.services.iter().any(|name| name == "gateway") {
            stack.run_gateway("migrate", &self.environment(&stack, "gateway", 0)?).await?;
            stack.api_key = stack.run_gateway("bootstrap-key", &[]).await?;
        }
        for name in &self.services {
            let health_port = free_port()?;
            let environment = self.environment(&stack, name, health_port)?;
            let log = stack.dir.path().join(format!("{name}.log"));
            let service = Service { name: name.clone(), environment, health_port, log, child: None };
            stack.services.insert(name.clone(), service);
        }
        for name in &self.services {
            stack.service(name)?.spawn()?;
        }
        for name in &self.services {
            stack.service(name)?.ready().await?;
        }
        Ok(stack)
    }

    /// The same variables as `make up` sets (`.ci/lib/stack.sh`), then the test's own.
    fn environment(&self, stack: &Stack, name: &str, health_port: u16) -> Result<Vec<(String, String)>> {
        let root = stack.artifacts_root().display().to_string();
        let mut pairs = vec![
            ("PPX__DATABASE__URL".to_owned(), stack.database_url().to_owned()),
            ("PPX__REDIS__URL".to_owned(), stack.redis_url().to_owned()),
            ("PPX__AMQP__URL".to_owned(), stack.amqp_url().to_owned()),
            ("PPX__ARTIFACTS__ROOT".to_owned(), root),
            ("PPX__ARTIFACTS__IMPORT_DIR".to_owned(), stack.import_dir().display().to_string()),
            ("PPX__INTERNAL__TOKEN".to_owned(), "internal-token-of-a-system-test-0123456789".to_owned()),
            ("PPX__HEALTH__PORT".to_owned(), health_port.to_string()),
            ("NO_COLOR".to_owned(), "1".to_owned()),
        ];
        match name {
            "gateway" => {
                pairs.push(("PPX__GATEWAY__PORT".into(), stack.gateway_port.to_string()));
                let sessions = format!("http://127.0.0.1:{}", stack.sessions_port);
                pairs.push(("PPX__GATEWAY__INFERENCE_URL".into(), sessions));
                pairs.push(("PPX__AUTH__BOOTSTRAP_KEY".into(), stack.api_key.clone()));
            }
            "inference" => pairs.push(("PPX__INFERENCE__PORT".into(), stack.sessions_port.to_string())),
            "evaluation" => {
                pairs.push(("PPX__EVALUATION__GATEWAY_URL".into(), stack.gateway_url()));
                pairs.push(("PPX__AUTH__BOOTSTRAP_KEY".into(), stack.api_key.clone()));
            }
            _ => {}
        }
        pairs.extend(self.everywhere.iter().cloned());
        let own = self.one.iter().filter(|(service, ..)| service == name);
        pairs.extend(own.map(|(_, key, value)| (key.clone(), value.clone())));
        Ok(pairs)
    }
}

/// Services as child processes over a database, a vhost, a Redis database and an artifacts folder of their own. All
/// of it goes with this value.
#[derive(Debug)]
pub struct Stack {
    // Declared first, dropped first: the processes go before what they are connected to.
    services: BTreeMap<String, Service>,
    database: TestDb,
    redis: TestRedis,
    amqp_url: String,
    _bus: Option<TestBus>,
    dir: TempDir,
    gateway_port: u16,
    sessions_port: u16,
    api_key: String,
}

impl Stack {
    /// Nothing yet; name the services, then start.
    pub fn builder() -> StackBuilder {
        StackBuilder::default()
    }

    /// Base URL of the public API.
    pub fn gateway_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway_port)
    }

    /// The bootstrap key, registered by the gateway; empty in a stack without one.
    pub fn api_key(&self) -> &str {
        &self.api_key
    }

    /// The stack's database.
    pub fn database_url(&self) -> &str {
        self.database.url()
    }

    /// The stack's vhost or broker.
    pub fn amqp_url(&self) -> &str {
        &self.amqp_url
    }

    /// The stack's Redis database.
    pub fn redis_url(&self) -> &str {
        self.redis.url()
    }

    /// The folder of the stack's files.
    pub fn artifacts_root(&self) -> PathBuf {
        self.dir.path().join("artifacts")
    }

    /// The folder from which models may be registered.
    pub fn import_dir(&self) -> PathBuf {
        self.dir.path().join("import")
    }

    /// SIGKILL to one service; returns when it is gone.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.service(name)?.kill()
    }

    /// Starts a service again (after killing it, if it runs) and waits until it is ready.
    pub async fn restart(&mut self, name: &str) -> Result<()> {
        let service = self.service(name)?;
        service.kill()?;
        service.spawn()?;
        service.ready().await
    }

    /// Whether the service's process is there.
    pub fn is_running(&mut self, name: &str) -> Result<bool> {
        self.service(name)?.is_running()
    }

    /// Process id of a running service.
    pub fn pid(&self, name: &str) -> Result<u32> {
        let service = self.services.get(name).with_context(|| format!("no service {name} in this stack"))?;
        service.child.as_ref().map(std::process::Child::id).with_context(|| format!("{name} does not run"))
    }

    /// Everything that the service wrote to its output so far.
    pub fn log(&self, name: &str) -> Result<String> {
        let service = self.services.get(name).with_context(|| format!("no service {name} in this stack"))?;
        Ok(std::fs::read_to_string(&service.log)?)
    }

    fn service(&mut self, name: &str) -> Result<&mut Service> {
        self.services.get_mut(name).with_context(|| format!("no service {name} in this stack"))
    }

    /// Runs a one-shot command of the gateway; returns what it printed.
    async fn run_gateway(&self, command: &str, environment: &[(String, String)]) -> Result<String> {
        let mut gateway = program("gateway", environment)?;
        gateway.arg(command).stderr(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || gateway.output()).await??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        ensure!(
            output.status.success(),
            "gateway {command}: {}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        Ok(text(&output.stdout))
    }
}

#[derive(Debug)]
struct Service {
    name: String,
    environment: Vec<(String, String)>,
    health_port: u16,
    log: PathBuf,
    child: Option<Child>,
}

impl Service {
    fn spawn(&mut self) -> Result<()> {
        let out = File::options().create(true).append(true).open(&self.log)?;
        let mut command = program(&self.name, &self.environment)?;
        // In the test's process group: a runner that ends a stuck test ends its services with it.
        self.child = Some(command.stdout(out.try_clone()?).stderr(out).spawn()?);
        Ok(())
    }

    async fn ready(&mut self) -> Result<()> {
        let start = Instant::now();
        let authority = format!("127.0.0.1:{}", self.health_port);
        loop {
            if http::status("GET", &authority, "/health/ready").await.is_ok_and(|status| status == 200) {
                return Ok(());
            }
            if !self.is_running()? || start.elapsed() > READY_DEADLINE {
                let state = if self.is_running()? { "not ready in time" } else { "ended" };
                bail!("{} {state}; the end of its output:\n{}", self.name, tail(&self.log)?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn is_running(&mut self) -> Result<bool> {
        Ok(match &mut self.child {
            Some(child) => child.try_wait()?.is_none(),
            None => false,
        })
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.kill());
        // A test that fails shows what its services said last.
        if std::thread::panicking() {
            let end = tail(&self.log).unwrap_or_default();
            eprintln!("--- end of the output of {}:\n{end}", self.name);
        }
    }
}

/// One of our programs in the workspace root (where `configs/` is), with only the given settings.
fn program(name: &str, environment: &[(String, String)]) -> Result<Command> {
    let mut command = Command::new(binary(name)?);
    command.current_dir(workspace_root()).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        if Path::new(&key).to_string_lossy().starts_with("PPX_") {
            command.env_remove(key);
        }
    }
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    Ok(command)
}
