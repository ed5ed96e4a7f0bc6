//! A Redis database of one's own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};

use crate::servers::{Servers, authority, with_path};

/// As `--databases` in `.ci/lib/servers.sh`; number 0 holds the counter.
const DATABASES: u64 = 4096;

/// An empty Redis database: numbers are handed out in turn, so tests that run together never share one.
#[derive(Debug)]
pub struct TestRedis {
    url: String,
}

impl TestRedis {
    /// Takes the next number and empties it. Blocks for a moment.
    pub fn new() -> Result<Self> {
        let servers = Servers::get()?;
        let mut stream =
            TcpStream::connect(authority(&servers.redis_url)?).context("cannot connect to Redis")?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let mut ask = |command: String| -> Result<String> {
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            let mut line = String::new();
            answers.read_line(&mut line)?;
            ensure!(line.starts_with([':', '+']), "Redis answered {line:?} to {command}");
            Ok(line[1..].trim().to_owned())
        };
        let count: u64 = ask("INCR ppx:testkit:databases".into())?.parse()?;
        let number = 1 + count % (DATABASES - 1);
        ask(format!("SELECT {number}"))?;
        ask("FLUSHDB".into())?;
        Ok(Self { url: with_path(&servers.redis_url, &number.to_string())? })
    }

    /// For `PPX__REDIS__URL` or a connection of one's own.
    pub fn url(&self) -> &str {
        &self.url
    }
}
