//! How a provider is reached. Keys are `SecretString`s; the settings' environment layer is the only place to give them.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;

use crate::error::{ErrorKind, LlmError};
use crate::retry::RetryPolicy;
use crate::{Anthropic, OpenAi, Provider};

/// The API that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// Anthropic's Messages and Batches.
    Anthropic,
    /// Chat completions as vLLM, Ollama and many others serve them.
    Openai,
}

/// One provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The API that it speaks.
    pub kind: ProviderKind,
    /// Address up to and without `/v1`, e.g. `https://api.anthropic.com`. Operators set it, users never do.
    pub base_url: String,
    /// Key; empty = none is sent.
    #[serde(default)]
    pub api_key: SecretString,
    /// Calls at once at the start; grows and shrinks with the answers.
    pub concurrency: usize,
    /// Calls at once at most.
    pub max_concurrency: usize,
    /// Tries of one request.
    pub tries: usize,
    /// Longest time for all tries of a request.
    pub total_retry_seconds: u64,
    /// Longest time to connect.
    pub connect_seconds: u64,
    /// Longest silence within an answer.
    pub idle_seconds: u64,
    /// Longest time of one call.
    pub call_seconds: u64,
}

/// Longest waits of a call.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Duration,
    /// Between parts of an answer.
    pub idle: Duration,
    /// For the whole call.
    pub total: Duration,
}

impl ProviderSettings {
    /// The longest waits.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(self.connect_seconds),
            idle: Duration::from_secs(self.idle_seconds),
            total: Duration::from_secs(self.call_seconds),
        }
    }

    /// How often requests are tried: full jitter from 1 s to 60 s.
    #[must_use]
    pub fn retries(&self) -> RetryPolicy {
        RetryPolicy {
            tries: self.tries.max(1),
            base: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            total: Duration::from_secs(self.total_retry_seconds),
        }
    }

    /// The address, checked.
    ///
    /// # Errors
    /// When it is no plain http or https address.
    pub fn checked_base(&self) -> Result<String, LlmError> {
        let bad = |detail: &str| LlmError::new(ErrorKind::InvalidRequest, format!("base_url {detail}"));
        let url = reqwest::Url::parse(&self.base_url).map_err(|e| bad(&format!("is no address: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("must start with http:// or https://"));
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(bad("must hold neither a user, nor a password, nor parameters"));
        }
        Ok(self.base_url.trim_end_matches('/').trim_end_matches("/v1").to_owned())
    }

    /// The provider.
    ///
    /// # Errors
    /// When the address is wrong.
    pub fn connect(&self) -> Result<Arc<dyn Provider>, LlmError> {
        let (base, key, timeouts) = (self.checked_base()?, self.api_key.clone(), self.timeouts());
        Ok(match self.kind {
            ProviderKind::Anthropic => Arc::new(Anthropic::new(base, key, timeouts)?),
            ProviderKind::Openai => Arc::new(OpenAi::new(base, key, timeouts)?),
        })
    }
}
