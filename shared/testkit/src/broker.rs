//! A RabbitMQ of one's own, to be killed.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::ports::free_ports;
use crate::workspace::script;

const START_DEADLINE: Duration = Duration::from_secs(90);

/// A private broker as a child of the test. It and its data go with this value.
///
/// Being a child, it is reaped as soon as it is dead, so a restart never meets the lock or port of its own corpse.
#[derive(Debug)]
pub struct Broker {
    dir: TempDir,
    port: u16,
    server: Option<Child>,
    epmd: Child,
}

impl Broker {
    /// Starts one and waits until it accepts connections (5 to 10 s).
    pub async fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ppx-broker-").tempdir()?;
        let port = free_ports(3)?;
        // Erlang's port mapper: started here, since one that Erlang starts itself would outlive the test.
        let epmd = Command::new("epmd")
            .args(["-port", &(port + 1).to_string(), "-address", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("epmd (package rabbitmq-server, `make setup`)")?;
        let mut broker = Self { dir, port, server: None, epmd };
        broker.restart().await?;
        Ok(broker)
    }

    /// The default vhost.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    /// SIGKILL; returns when the process is gone.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.kill()?;
            tokio::task::spawn_blocking(move || server.wait()).await??;
        }
        Ok(())
    }

    /// Starts it again on its data and port (after [`Broker::kill`]); waits until it accepts connections.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.server = Some(spawn(self.dir.path(), self.port)?);
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let server = self.server.as_mut().context("was just started")?;
            let ended = server.try_wait()?;
            if ended.is_some() || start.elapsed() > START_DEADLINE {
                bail!("RabbitMQ did not start ({ended:?}): {}", tail(&self.dir.path().join("out"))?);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        for child in self.server.iter_mut().chain([&mut self.epmd]) {
            // Fails only when it is dead already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn spawn(dir: &Path, port: u16) -> Result<Child> {
    let out = File::options().create(true).append(true).open(dir.join("out"))?;
    Command::new(script("test-servers.sh"))
        .arg("broker")
        .arg(dir)
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .context("cannot run .ci/lib/test-servers.sh")
}

/// The last lines of a log file.
pub(crate) fn tail(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(30)..].join("\n"))
}
