//! Clients against a local server that speaks the vendors' formats and misbehaves in every way they can.
#![expect(clippy::expect_used, reason = "tests")]

mod batches;
mod calls;
mod client;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use llm::{ChatRequest, Provider, ProviderKind, ProviderSettings, Tool};
use serde_json::json;

/// A key that must turn up in requests and nowhere else.
const KEY: &str = "sk-canary-0123456789";
const KINDS: [ProviderKind; 2] = [ProviderKind::Anthropic, ProviderKind::Openai];

fn settings(kind: ProviderKind, url: &str) -> ProviderSettings {
    ProviderSettings {
        kind,
        base_url: url.into(),
        api_key: KEY.to_owned().into(),
        concurrency: 4,
        max_concurrency: 8,
        tries: 3,
        total_retry_seconds: 60,
        connect_seconds: 2,
        idle_seconds: 1,
        call_seconds: 5,
    }
}

fn provider(kind: ProviderKind, url: &str) -> Arc<dyn Provider> {
    settings(kind, url).connect().expect("connects")
}

fn request(stream: bool) -> ChatRequest {
    let tool =
        Tool { name: "emit".into(), description: "The answer.".into(), schema: json!({ "type": "object" }) };
    ChatRequest {
        cache_system: true,
        tool: Some(tool),
        temperature: Some(0.5),
        stream,
        ..ChatRequest::text("m-1", "Be brief.", "What is it?", 200)
    }
}

const SHORT: Duration = Duration::from_millis(5);
