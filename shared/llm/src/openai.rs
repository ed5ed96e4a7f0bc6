//! Chat completions, as OpenAI, vLLM, Ollama and others serve them.

use async_trait::async_trait;
use futures::StreamExt;
use reqwest::{Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::error::{ErrorKind, LlmError};
use crate::settings::Timeouts;
use crate::types::{Answer, ChatRequest, Delta, RateLimits, StopReason, Usage};
use crate::{Provider, http};

/// A client of the API.
#[derive(Debug, Clone)]
pub struct OpenAi {
    http: reqwest::Client,
    base: String,
    key: SecretString,
    timeouts: Timeouts,
}

impl OpenAi {
    /// A client of the API at `base` (without `/v1`); an empty key is not sent.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(base: String, key: SecretString, timeouts: Timeouts) -> Result<Self, LlmError> {
        Ok(Self { http: http::client(&timeouts)?, base, key, timeouts })
    }
}

fn body(request: &ChatRequest) -> Value {
    let system = (!request.system.is_empty()).then(|| json!({ "role": "system", "content": request.system }));
    let others = request.messages.iter().map(|m| json!({ "role": m.role, "content": m.text }));
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": system.into_iter().chain(others).collect::<Vec<_>>(),
        "stream": request.stream,
    });
    if request.stream {
        body["stream_options"] = json!({ "include_usage": true });
    }
    if let Some(tool) = &request.tool {
        let function =
            json!({ "name": tool.name, "description": tool.description, "parameters": tool.schema });
        body["tools"] = json!([{ "type": "function", "function": function }]);
        body["tool_choice"] = json!({ "type": "function", "function": { "name": tool.name } });
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

fn usage(found: &Value) -> Usage {
    let number = |pointer: &str| found.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let cached = number("/prompt_tokens_details/cached_tokens");
    Usage {
        input_tokens: number("/prompt_tokens").saturating_sub(cached),
        output_tokens: number("/completion_tokens"),
        cache_write_tokens: 0,
        cache_read_tokens: cached,
    }
}

/// A completion, whole or as far as it has come: both forms are read by the same code.
#[derive(Debug, Default)]
struct Partial {
    text: String,
    tool: Option<String>,
    finish: Option<String>,
    refused: bool,
    usage: Usage,
    model: String,
}

impl Partial {
    /// Takes a document whose choices hold `part` (`message` or `delta`).
    fn take(&mut self, data: &Value, part: &str, deltas: &mut (dyn FnMut(Delta) + Send)) {
        if let Some(found) = data.get("usage").filter(|u| u.is_object()) {
            self.usage = usage(found);
        }
        if let Some(model) = data.get("model").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        let Some(choice) = data.pointer("/choices/0") else { return };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
        let Some(part) = choice.get(part) else { return };
        self.refused |= part.get("refusal").is_some_and(Value::is_string);
        if let Some(text) = part.get("content").and_then(Value::as_str).filter(|t| !t.is_empty()) {
            self.text.push_str(text);
            deltas(Delta::Text(text.to_owned()));
        }
        for call in part.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            // Only the first call counts: one tool, called once.
            if call.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
                continue;
            }
            let arguments = call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default();
            self.tool.get_or_insert_default().push_str(arguments);
            if !arguments.is_empty() {
                deltas(Delta::Tool(arguments.to_owned()));
            }
        }
    }

    fn whole(self) -> Answer {
        let tool: Option<Value> = self.tool.and_then(|json| serde_json::from_str(&json).ok());
        let stop = match self.finish.as_deref() {
            _ if self.refused => StopReason::Refusal,
            Some("length") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refusal,
            Some("stop" | "tool_calls" | "function_call") if tool.is_some() => StopReason::ToolUse,
            Some("stop") => StopReason::EndTurn,
            other => StopReason::Other(other.unwrap_or_default().to_owned()),
        };
        Answer {
            text: self.text,
            tool,
            stop,
            usage: self.usage,
            model: self.model,
            request_id: None,
            limits: RateLimits::default(),
        }
    }
}

async fn streamed(
    response: Response,
    timeouts: &Timeouts,
    deltas: &mut (dyn FnMut(Delta) + Send),
) -> Result<Answer, LlmError> {
    let mut events = http::events(response);
    let mut partial = Partial::default();
    while let Some(event) = http::idle(events.next(), timeouts).await? {
        let event = event?;
        if event.data.trim() == "[DONE]" {
            return if partial.finish.is_some() { Ok(partial.whole()) } else { Err(http::cut()) };
        }
        let data: Value =
            serde_json::from_str(&event.data).map_err(|error| http::malformed("an event", &error))?;
        if data.get("error").is_some() {
            let status =
                data.pointer("/error/code").and_then(Value::as_u64).and_then(|c| u16::try_from(c).ok());
            return Err(http::of_body(status.unwrap_or(500), Some(&data)).uncertain());
        }
        partial.take(&data, "delta", deltas);
    }
    Err(http::cut())
}

fn whole(document: &Value) -> Result<Answer, LlmError> {
    if document.pointer("/choices/0/message").is_none() {
        return Err(LlmError::new(ErrorKind::Malformed, "the completion has no message").uncertain());
    }
    let mut partial = Partial::default();
    partial.take(document, "message", &mut |_| {});
    Ok(partial.whole())
}

#[async_trait]
impl Provider for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    async fn chat(
        &self,
        request: &ChatRequest,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, LlmError> {
        let call = async {
            let mut sent = self
                .http
                .request(Method::POST, format!("{}/v1/chat/completions", self.base))
                .json(&body(request));
            if !self.key.expose_secret().is_empty() {
                sent = sent.bearer_auth(self.key.expose_secret());
            }
            let response = http::send(sent, &self.timeouts).await?;
            let (id, limits) = (http::request_id(response.headers()), http::limits(response.headers()));
            let ended = if request.stream {
                streamed(response, &self.timeouts, deltas).await
            } else {
                http::json(response, &self.timeouts).await.and_then(|document| whole(&document))
            };
            match ended {
                Ok(answer) => Ok(Answer { request_id: id, limits, ..answer }),
                Err(error) => Err(LlmError { request_id: id.or(error.request_id), ..error }),
            }
        };
        http::within(call, &self.timeouts).await
    }
}
