//! The REST API as a test sees it.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Stack, StackBuilder, wait_for};

/// All services in starting order.
pub const ALL: [&str; 8] =
    ["gateway", "datagen", "tts", "align", "dataset", "trainer", "inference", "evaluation"];

/// A stack with short leases, so that a dead worker is noticed within seconds.
pub fn builder(services: &[&str]) -> StackBuilder {
    Stack::builder()
        .services(services)
        .env_all("PPX__WORKER__LEASE_SECONDS", "4")
        .env_all("PPX__WORKER__HEARTBEAT_SECONDS", "1")
        .env_all("PPX__WORKER__POLL_SECONDS", "1")
        .env_all("PPX__WORKER__RETRY_SECONDS", "1")
        .env_all("PPX__SWEEPER__INTERVAL_SECONDS", "1")
        .env_all("PPX__SWEEPER__RING_AFTER_SECONDS", "5")
        .env_all("PPX__TELEMETRY__FORMAT", "json")
}

/// Calls of one stack.
#[derive(Clone)]
pub struct Api {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Api {
    pub fn new(stack: &Stack) -> Self {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        Self { http, url: stack.gateway_url(), key: stack.api_key().to_owned() }
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer =
            self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.key).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "GET {path}: {status} {body}");
        body
    }

    /// As [`Self::get`], but a gateway that is down for a moment is no failure.
    pub async fn try_get(&self, path: &str) -> Option<Value> {
        let answer = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.key).send().await.ok()?;
        answer.error_for_status().ok()?.json().await.ok()
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.post_traced(path, body, None).await
    }

    pub async fn post_traced(&self, path: &str, body: Value, traceparent: Option<&str>) -> Value {
        let mut request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(&body);
        if let Some(header) = traceparent {
            request = request.header("traceparent", header);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(status, 201, "POST {path} {body}: {answer}");
        answer
    }

    /// As [`Self::post`], for calls that make nothing.
    pub async fn post_checked(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(&body);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(status, 200, "POST {path} {body}: {answer}");
        answer
    }

    /// Registers the tiny base model.
    pub async fn register_tiny(&self, stack: &Stack) -> Value {
        let dir = stack.import_dir().join("tiny");
        weights::init_model(&dir, "tiny", 0).unwrap();
        self.post("/v1/models", json!({ "name": "tiny", "path": "tiny" })).await
    }

    /// Waits until the resource's state is terminal and insists on success.
    pub async fn succeeded(&self, path: &str, deadline: Duration) -> Value {
        let done = wait_for(path, deadline, async || {
            let view = self.try_get(path).await?;
            let state = view["state"].as_str()?.to_owned();
            ["succeeded", "failed", "cancelled"].contains(&state.as_str()).then_some(view)
        })
        .await
        .unwrap();
        if done["state"] != "succeeded" {
            let jobs = self.get("/v1/jobs?state=failed&limit=100").await;
            panic!("{path} is {}: failed jobs {jobs}", done["state"]);
        }
        done
    }
}

/// Text of a field that must be there.
pub fn text(view: &Value, field: &str) -> String {
    view[field].as_str().unwrap_or_else(|| panic!("{field} in {view}")).to_owned()
}
