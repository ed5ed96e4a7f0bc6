//! Facts from a service of the operator: `POST {"query": ...}`, answered with `{"facts": [{"id", "text", "tags"}]}`.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::advise::Lookup;
use crate::knowledge::{Fact, KnowledgeBase};

/// Longest answer that is read, bytes.
const MAX_ANSWER: usize = 256 * 1_024;

/// A tool as the settings name it. Sessions refer to it by that name, never by an address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// Where it is asked.
    pub url: String,
    /// Sent as `Authorization: Bearer`; only through the environment.
    #[serde(default)]
    pub token: Option<SecretString>,
}

/// Asks a tool over HTTP.
pub struct HttpLookup {
    client: reqwest::Client,
    settings: ToolSettings,
}

#[derive(Deserialize)]
struct Answer {
    facts: Vec<Fact>,
}

impl HttpLookup {
    /// A tool that has `timeout` for each answer; it is not followed to other addresses.
    ///
    /// # Errors
    /// When the HTTP client cannot be made.
    pub fn new(settings: ToolSettings, timeout: Duration) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().timeout(timeout).redirect(Policy::none()).build()?;
        Ok(Self { client, settings })
    }

    async fn ask(&self, said: &str) -> Result<KnowledgeBase, String> {
        let mut request = self.client.post(&self.settings.url).json(&json!({ "query": said }));
        if let Some(token) = &self.settings.token {
            request = request.bearer_auth(token.expose_secret());
        }
        // Errors of the client name the address, which may hold a secret.
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
            format!("the tool {why}")
        };
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("the tool answered with status {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(format!("the tool's answer is longer than {MAX_ANSWER} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| "the tool's answer is not {\"facts\": [...]}".to_owned())?;
        if answer.facts.is_empty() {
            return Ok(KnowledgeBase::default());
        }
        KnowledgeBase::new(answer.facts).map_err(|error| format!("the tool's answer: {error}"))
    }
}

#[async_trait]
impl Lookup for HttpLookup {
    async fn look_up(&self, said: &str) -> Result<KnowledgeBase, String> {
        self.ask(said).await
    }
}
