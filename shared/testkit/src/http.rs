//! The few HTTP requests that the test support itself makes (readiness, RabbitMQ's management API). HTTP/1.0 on a
//! fresh connection: no chunks, no keep-alive, so no client library.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(10);

/// Sends one request to `authority` (`[user:password@]host:port`); returns the status.
pub(crate) async fn status(method: &str, authority: &str, path: &str) -> Result<u16> {
    tokio::time::timeout(DEADLINE, exchange(method, authority, path))
        .await
        .with_context(|| format!("{method} {path} took longer than {DEADLINE:?}"))?
        .with_context(|| format!("{method} {path}"))
}

async fn exchange(method: &str, authority: &str, path: &str) -> Result<u16> {
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let authorization = user.map_or_else(String::new, |user| {
        format!("Authorization: Basic {}\r\n", base64::engine::general_purpose::STANDARD.encode(user))
    });
    let mut stream = TcpStream::connect(host).await?;
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}Content-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).context("the answer has no status line")
}
