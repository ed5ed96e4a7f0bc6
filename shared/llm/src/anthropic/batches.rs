//! Anthropic's Message Batches.

use async_trait::async_trait;
use futures::stream::{BoxStream, try_unfold};
use futures::{StreamExt, TryStreamExt};
use reqwest::Method;
use serde_json::{Value, json};

use crate::batch::{BatchResult, BatchState, Batches};
use crate::error::{ErrorKind, LlmError};
use crate::types::ChatRequest;
use crate::{Anthropic, http};

use super::{answer, params};

/// Longest line of results.
const MAX_LINE: usize = 16 << 20;

fn state(document: &Value) -> Result<BatchState, LlmError> {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    let (Some(id), Some(status)) = (text("id"), text("processing_status")) else {
        return Err(
            LlmError::new(ErrorKind::Malformed, "the batch has no id or no processing_status").uncertain()
        );
    };
    if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        return Err(LlmError::new(ErrorKind::Malformed, "the id of the batch is none").uncertain());
    }
    let processing = document.pointer("/request_counts/processing").and_then(Value::as_u64).unwrap_or(0);
    Ok(BatchState { id: id.to_owned(), ended: status == "ended", processing })
}

fn line(text: &str) -> Result<(String, BatchResult), LlmError> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| http::malformed("a line of results", &error))?;
    let id = document.get("custom_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = document.pointer("/result/type").and_then(Value::as_str).unwrap_or_default();
    let result = match kind {
        "succeeded" => {
            let message = document.pointer("/result/message").unwrap_or(&Value::Null);
            BatchResult::Succeeded(Box::new(answer(message)?))
        }
        "canceled" => BatchResult::Canceled,
        "expired" => BatchResult::Expired,
        _ => {
            // `{"type": "error", "error": {"type", "message"}}`; some answers leave the outer document out.
            let error = document.pointer("/result/error").unwrap_or(&Value::Null);
            let whole = if error.get("error").is_some() { error.clone() } else { json!({ "error": error }) };
            let invalid = whole.pointer("/error/type").is_some_and(|t| t == "invalid_request_error");
            BatchResult::Errored(http::of_body(if invalid { 400 } else { 500 }, Some(&whole)))
        }
    };
    Ok((id, result))
}

#[async_trait]
impl Batches for Anthropic {
    async fn submit(&self, requests: &[(String, ChatRequest)]) -> Result<BatchState, LlmError> {
        let listed: Vec<Value> =
            requests.iter().map(|(id, r)| json!({ "custom_id": id, "params": params(r) })).collect();
        let sent = self.request(Method::POST, "/v1/messages/batches").json(&json!({ "requests": listed }));
        let response = http::send(sent, &self.timeouts).await?;
        state(&http::json(response, &self.timeouts).await?)
    }

    async fn poll(&self, id: &str) -> Result<BatchState, LlmError> {
        let sent = self.request(Method::GET, &format!("/v1/messages/batches/{id}"));
        let response = http::send(sent, &self.timeouts).await?;
        state(&http::json(response, &self.timeouts).await?)
    }

    /// Read from the path of the batch: a `results_url` of an answer is never followed with our key.
    async fn results(
        &self,
        id: &str,
    ) -> Result<BoxStream<'static, Result<(String, BatchResult), LlmError>>, LlmError> {
        let sent = self.request(Method::GET, &format!("/v1/messages/batches/{id}/results"));
        let response = http::send(sent, &self.timeouts).await?;
        let timeouts = self.timeouts;
        let bytes = response.bytes_stream().map_err(|error| http::failed(error, true)).boxed();
        let lines =
            try_unfold((bytes, Vec::<u8>::new(), false), move |(mut bytes, mut kept, mut over)| async move {
                loop {
                    if let Some(end) = kept.iter().position(|b| *b == b'\n') {
                        let rest = kept.split_off(end + 1);
                        let text = String::from_utf8_lossy(&kept).trim().to_owned();
                        return Ok(Some((text, (bytes, rest, over))));
                    }
                    if over {
                        let text = String::from_utf8_lossy(&kept).trim().to_owned();
                        return Ok((!text.is_empty()).then(|| (text, (bytes, Vec::new(), true))));
                    }
                    match http::idle(bytes.next(), &timeouts).await? {
                        Some(part) => kept.extend_from_slice(&part?),
                        None => over = true,
                    }
                    if kept.len() > MAX_LINE {
                        return Err(
                            LlmError::new(ErrorKind::Malformed, "a line of results has no end").uncertain()
                        );
                    }
                }
            });
        let filled = lines.try_filter(|text| std::future::ready(!text.is_empty()));
        Ok(filled.and_then(|text| std::future::ready(line(&text))).boxed())
    }
}
