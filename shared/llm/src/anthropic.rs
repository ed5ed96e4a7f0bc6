//! Anthropic's Messages API.

use async_trait::async_trait;
use futures::StreamExt;
use reqwest::{Method, RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::error::{ErrorKind, LlmError};
use crate::settings::Timeouts;
use crate::types::{Answer, ChatRequest, Delta, StopReason, Usage};
use crate::{Provider, batch, http};

mod batches;

const VERSION: &str = "2023-06-01";

/// A client of the API.
#[derive(Debug, Clone)]
pub struct Anthropic {
    http: reqwest::Client,
    base: String,
    key: SecretString,
    timeouts: Timeouts,
}

impl Anthropic {
    /// A client of the API at `base` (without `/v1`).
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(base: String, key: SecretString, timeouts: Timeouts) -> Result<Self, LlmError> {
        Ok(Self { http: http::client(&timeouts)?, base, key, timeouts })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .header("anthropic-version", VERSION)
            .header("x-api-key", self.key.expose_secret())
    }
}

/// The parameters of a message.
fn params(request: &ChatRequest) -> Value {
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": request.messages.iter().map(|m| json!({ "role": m.role, "content": m.text })).collect::<Vec<_>>(),
    });
    if !request.system.is_empty() {
        let mut block = json!({ "type": "text", "text": request.system });
        if request.cache_system {
            // Tools come before the system text: one mark keeps both.
            block["cache_control"] = json!({ "type": "ephemeral" });
        }
        body["system"] = json!([block]);
    }
    if let Some(tool) = &request.tool {
        body["tools"] =
            json!([{ "name": tool.name, "description": tool.description, "input_schema": tool.schema }]);
        body["tool_choice"] = json!({ "type": "tool", "name": tool.name });
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

fn stop(reason: Option<&str>) -> StopReason {
    match reason {
        Some("end_turn" | "stop_sequence") => StopReason::EndTurn,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal,
        other => StopReason::Other(other.unwrap_or_default().to_owned()),
    }
}

/// Takes over the numbers that are there: those of a stream are cumulative.
fn add_usage(usage: &mut Usage, found: &Value) {
    let slots = [
        ("input_tokens", &mut usage.input_tokens),
        ("output_tokens", &mut usage.output_tokens),
        ("cache_creation_input_tokens", &mut usage.cache_write_tokens),
        ("cache_read_input_tokens", &mut usage.cache_read_tokens),
    ];
    for (key, slot) in slots {
        if let Some(number) = found.get(key).and_then(Value::as_u64) {
            *slot = number;
        }
    }
}

/// A message as a whole document.
fn answer(message: &Value) -> Result<Answer, LlmError> {
    let text_of = |key: &str| message.get(key).and_then(Value::as_str);
    let Some(content) = message.get("content").and_then(Value::as_array) else {
        return Err(LlmError::new(ErrorKind::Malformed, "the message has no content").uncertain());
    };
    let mut usage = Usage::default();
    add_usage(&mut usage, message.get("usage").unwrap_or(&Value::Null));
    let blocks =
        |kind: &'static str| content.iter().filter(move |b| b.get("type").is_some_and(|t| t == kind));
    Ok(Answer {
        text: blocks("text").filter_map(|b| b.get("text").and_then(Value::as_str)).collect(),
        tool: blocks("tool_use").find_map(|b| b.get("input").cloned()),
        stop: stop(text_of("stop_reason")),
        usage,
        model: text_of("model").unwrap_or_default().to_owned(),
        request_id: None,
        limits: crate::types::RateLimits::default(),
    })
}

/// A streamed message, as far as it has come.
#[derive(Debug, Default)]
struct Partial {
    text: String,
    tool: Option<String>,
    usage: Usage,
    model: String,
    stop: Option<String>,
}

impl Partial {
    /// Takes an event; true at the end of the message. Events and fields that are not known are passed over.
    fn take(
        &mut self,
        event: &http::Event,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<bool, LlmError> {
        let known = [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "message_delta",
            "message_stop",
            "error",
        ];
        if !known.contains(&event.name.as_str()) {
            return Ok(false);
        }
        let data: Value =
            serde_json::from_str(&event.data).map_err(|error| http::malformed("an event", &error))?;
        match event.name.as_str() {
            "message_start" => {
                let message = data.get("message").unwrap_or(&Value::Null);
                add_usage(&mut self.usage, message.get("usage").unwrap_or(&Value::Null));
                message.get("model").and_then(Value::as_str).unwrap_or_default().clone_into(&mut self.model);
            }
            "content_block_start" => {
                if data.pointer("/content_block/type").is_some_and(|t| t == "tool_use") && self.tool.is_none()
                {
                    self.tool = Some(String::new());
                }
            }
            "content_block_delta" => self.delta(&data, deltas),
            "message_delta" => {
                add_usage(&mut self.usage, data.get("usage").unwrap_or(&Value::Null));
                let reason = data.pointer("/delta/stop_reason").and_then(Value::as_str);
                self.stop = reason.map(str::to_owned).or(self.stop.take());
            }
            "message_stop" => return Ok(true),
            // After the head of a good answer: its type says what a status would.
            _ => return Err(http::of_body(500, Some(&data)).uncertain()),
        }
        Ok(false)
    }

    fn delta(&mut self, data: &Value, deltas: &mut (dyn FnMut(Delta) + Send)) {
        let part = |key: &str| data.pointer(&format!("/delta/{key}")).and_then(Value::as_str);
        if let Some(text) = part("text") {
            self.text.push_str(text);
            deltas(Delta::Text(text.to_owned()));
        } else if let (Some(json), Some(tool)) = (part("partial_json"), self.tool.as_mut()) {
            tool.push_str(json);
            deltas(Delta::Tool(json.to_owned()));
        }
    }

    /// The answer. The input of a tool that was cut off at the limit of tokens is no JSON: then there is none.
    fn whole(self) -> Answer {
        Answer {
            text: self.text,
            tool: self.tool.and_then(|json| serde_json::from_str(&json).ok()),
            stop: stop(self.stop.as_deref()),
            usage: self.usage,
            model: self.model,
            request_id: None,
            limits: crate::types::RateLimits::default(),
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
        if partial.take(&event?, deltas)? {
            return Ok(partial.whole());
        }
    }
    Err(http::cut())
}

#[async_trait]
impl Provider for Anthropic {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    async fn chat(
        &self,
        request: &ChatRequest,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, LlmError> {
        let mut body = params(request);
        body["stream"] = json!(request.stream);
        let call = async {
            let sent = self.request(Method::POST, "/v1/messages").json(&body);
            let response = http::send(sent, &self.timeouts).await?;
            let (id, limits) = (http::request_id(response.headers()), http::limits(response.headers()));
            let ended = if request.stream {
                streamed(response, &self.timeouts, deltas).await
            } else {
                http::json(response, &self.timeouts).await.and_then(|message| answer(&message))
            };
            match ended {
                Ok(answer) => Ok(Answer { request_id: id, limits, ..answer }),
                Err(error) => Err(LlmError { request_id: id.or(error.request_id), ..error }),
            }
        };
        http::within(call, &self.timeouts).await
    }

    fn batches(&self) -> Option<&dyn batch::Batches> {
        Some(self)
    }
}
