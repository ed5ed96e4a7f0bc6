//! A vhost of one's own.

use anyhow::{Context, Result, ensure};

use crate::http::status;
use crate::servers::{Servers, with_path};

/// A fresh RabbitMQ vhost: exchanges and queues may have any name. Deleted with this value.
#[derive(Debug)]
pub struct TestBus {
    vhost: String,
    url: String,
    management: String,
}

impl TestBus {
    /// Creates the vhost.
    pub async fn new() -> Result<Self> {
        let servers = tokio::task::spawn_blocking(Servers::get).await??;
        let vhost = format!("test-{}", uuid::Uuid::new_v4().simple());
        let management = servers.management_url.trim_end_matches('/');
        let management =
            management.strip_prefix("http://").context("the management url starts with http://")?;
        // The creating user gets full permissions on it.
        let answer = status("PUT", management, &format!("/api/vhosts/{vhost}")).await?;
        ensure!(answer == 201, "RabbitMQ answered {answer} when asked for a new vhost");
        Ok(Self { url: with_path(&servers.amqp_url, &vhost)?, vhost, management: management.to_owned() })
    }

    /// For `PPX__AMQP__URL` or a connection of one's own.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the vhost.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }
}

impl Drop for TestBus {
    fn drop(&mut self) {
        let (management, path) = (self.management.clone(), format!("/api/vhosts/{}", self.vhost));
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(status("DELETE", &management, &path))
        });
        drop(deleting.join());
    }
}
