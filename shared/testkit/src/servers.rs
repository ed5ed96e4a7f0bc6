//! The servers all tests share.

use std::collections::HashMap;
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{script, state_dir};

/// Addresses of one Postgres, one Redis and one RabbitMQ for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// Superuser connection to the maintenance database.
    pub database_url: String,
    /// Without a database number.
    pub redis_url: String,
    /// The default vhost.
    pub amqp_url: String,
    /// RabbitMQ's management API, with user and password; creates and deletes vhosts.
    pub management_url: String,
}

impl Servers {
    /// The running servers; starts them when this is the first test that asks (some seconds, once).
    ///
    /// `TEST_DATABASE_URL`, `TEST_REDIS_URL`, `TEST_AMQP_URL` and `TEST_AMQP_MANAGEMENT_URL` name other ones; then
    /// all four must be set.
    pub fn get() -> Result<&'static Self> {
        static SERVERS: OnceLock<Result<Servers, String>> = OnceLock::new();
        let found = SERVERS.get_or_init(|| Self::find().map_err(|error| format!("{error:#}")));
        found.as_ref().map_err(|error| anyhow::anyhow!("no test servers: {error}"))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the test support has no settings: three variables are all"
    )]
    fn find() -> Result<Self> {
        let given: HashMap<String, String> =
            std::env::vars().filter(|(key, _)| key.starts_with("TEST_") && key.ends_with("_URL")).collect();
        if given.contains_key("TEST_DATABASE_URL") || given.contains_key("TEST_AMQP_URL") {
            return Self::from_pairs(&given).context("servers given by the environment");
        }
        let dir = state_dir()?;
        if let Ok(running) = Self::read(&dir) {
            return Ok(running);
        }
        // The script holds a lock, so one process starts the servers and the others find them running.
        let output = Command::new(script("test-servers.sh"))
            .arg("up")
            .arg(&dir)
            .stdin(Stdio::null())
            .output()
            .context("cannot run .ci/lib/test-servers.sh")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Self::read(&dir)
    }

    /// Reads the address file, checks that each server accepts connections and marks the set as in use.
    fn read(dir: &Path) -> Result<Self> {
        let file = dir.join("servers.env");
        let text = std::fs::read_to_string(&file)?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let servers = Self::from_pairs(&pairs.map(|(key, value)| (key.into(), value.into())).collect())?;
        for url in [&servers.database_url, &servers.redis_url, &servers.amqp_url] {
            TcpStream::connect(authority(url)?).with_context(|| format!("{url} does not answer"))?;
        }
        File::options().write(true).open(&file)?.set_modified(SystemTime::now())?;
        Ok(servers)
    }

    fn from_pairs(pairs: &HashMap<String, String>) -> Result<Self> {
        let get = |key: &str| pairs.get(key).cloned().with_context(|| format!("{key} is not set"));
        Ok(Self {
            database_url: get("TEST_DATABASE_URL")?,
            redis_url: get("TEST_REDIS_URL")?,
            amqp_url: get("TEST_AMQP_URL")?,
            management_url: get("TEST_AMQP_MANAGEMENT_URL")?,
        })
    }
}

/// `host:port` of a URL.
pub(crate) fn authority(url: &str) -> Result<&str> {
    let Some((_, rest)) = url.split_once("://") else { bail!("{url} is not a url") };
    let authority = rest.split('/').next().unwrap_or(rest);
    Ok(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

/// The URL with its path replaced.
pub(crate) fn with_path(url: &str, path: &str) -> Result<String> {
    let Some((scheme, rest)) = url.split_once("://") else { bail!("{url} is not a url") };
    Ok(format!("{scheme}://{}/{path}", rest.split('/').next().unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() -> Result<()> {
        assert_eq!(authority("amqp://guest:p@127.0.0.1:5/%2f")?, "127.0.0.1:5");
        assert_eq!(with_path("redis://127.0.0.1:5", "7")?, "redis://127.0.0.1:5/7");
        assert_eq!(with_path("postgres://p@h:1/postgres", "x")?, "postgres://p@h:1/x");
        assert!(authority("nonsense").is_err());
        Ok(())
    }
}
