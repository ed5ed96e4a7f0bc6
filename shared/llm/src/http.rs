//! What both APIs have in common on the wire.

use std::time::Duration;

use eventsource_stream::Eventsource;
use futures::{Stream, StreamExt};
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use serde_json::Value;

use crate::error::{ErrorKind, LlmError, classify};
use crate::retry::{reset_after, retry_after};
use crate::settings::Timeouts;
use crate::types::RateLimits;

/// Largest answer that is read into memory; results of batches are streamed instead.
const MAX_BODY: usize = 16 << 20;

/// One event of a stream of answers.
#[derive(Debug)]
pub(crate) struct Event {
    pub name: String,
    pub data: String,
}

pub(crate) fn client(timeouts: &Timeouts) -> Result<reqwest::Client, LlmError> {
    reqwest::Client::builder()
        .connect_timeout(timeouts.connect)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| {
            LlmError::new(ErrorKind::Network, format!("no HTTP client: {}", error.without_url()))
        })
}

/// Sends and waits for the head of a good answer.
pub(crate) async fn send(request: RequestBuilder, timeouts: &Timeouts) -> Result<Response, LlmError> {
    let sent = tokio::time::timeout(timeouts.total, request.send()).await;
    let response = sent
        .map_err(|_| {
            LlmError::new(ErrorKind::Timeout, format!("no answer in {:?}", timeouts.total)).uncertain()
        })?
        .map_err(|error| failed(error, false))?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refused(response, timeouts).await)
}

/// An error of the transport. A key never gets here: it is in a header, and addresses are cut off.
pub(crate) fn failed(error: reqwest::Error, after_head: bool) -> LlmError {
    let kind = match () {
        () if error.is_timeout() => ErrorKind::Timeout,
        () if after_head => ErrorKind::StreamCut,
        () => ErrorKind::Network,
    };
    let sent = after_head || !error.is_connect();
    let failure = LlmError::new(kind, chain(&error.without_url()));
    if sent { failure.uncertain() } else { failure }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text = format!("{text}: {next}");
        source = next.source();
    }
    text
}

async fn refused(response: Response, timeouts: &Timeouts) -> LlmError {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body =
        body(response, timeouts).await.ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let mut error = of_body(status, body.as_ref());
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    error.request_id = request_id(&headers).or(error.request_id);
    error.retry_after = header("retry-after-ms")
        .and_then(|v| v.parse().ok())
        .map(Duration::from_millis)
        .or_else(|| header("retry-after").and_then(retry_after));
    error.limits = limits(&headers);
    error
}

/// The error in a document of either API: `{"error": {"type", "code", "message"}}`.
pub(crate) fn of_body(status: u16, body: Option<&Value>) -> LlmError {
    let text = |key: &str| body.and_then(|b| b.pointer(&format!("/error/{key}"))).and_then(Value::as_str);
    let (kind, code) = (text("type").unwrap_or_default(), text("code").unwrap_or_default());
    let message = text("message").unwrap_or("the answer has no message");
    let word = if code.is_empty() { kind } else { code };
    let mut error =
        LlmError::new(classify(status, word, message), format!("status {status} {word}: {message}"));
    error.status = Some(status);
    error.request_id = body.and_then(|b| b.get("request_id")).and_then(Value::as_str).map(str::to_owned);
    error
}

/// The vendor's id of the request.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("request-id").or_else(|| headers.get("x-request-id"))?;
    id.to_str().ok().map(str::to_owned)
}

/// What the headers say about limits: both families of names.
pub(crate) fn limits(headers: &HeaderMap) -> RateLimits {
    let text = |name: String| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut found = RateLimits::default();
    for (what, is_requests) in
        [("requests", true), ("tokens", false), ("input-tokens", false), ("output-tokens", false)]
    {
        for [remaining, reset] in [
            [format!("anthropic-ratelimit-{what}-remaining"), format!("anthropic-ratelimit-{what}-reset")],
            [format!("x-ratelimit-remaining-{what}"), format!("x-ratelimit-reset-{what}")],
        ] {
            let Some(left) = text(remaining).and_then(|v| v.trim().parse::<u64>().ok()) else { continue };
            let slot = if is_requests { &mut found.requests_remaining } else { &mut found.tokens_remaining };
            *slot = Some(slot.map_or(left, |old| old.min(left)));
            if left == 0 {
                found.reset_after = found.reset_after.max(text(reset).as_deref().and_then(reset_after));
            }
        }
    }
    found
}

/// The whole body, up to a limit.
pub(crate) async fn body(response: Response, timeouts: &Timeouts) -> Result<Vec<u8>, LlmError> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(part) = idle(stream.next(), timeouts).await? {
        bytes.extend_from_slice(&part.map_err(|error| failed(error, true))?);
        if bytes.len() > MAX_BODY {
            let detail = format!("the answer is longer than {MAX_BODY} bytes");
            return Err(LlmError::new(ErrorKind::Malformed, detail).uncertain());
        }
    }
    Ok(bytes)
}

/// The body as a JSON document.
pub(crate) async fn json(response: Response, timeouts: &Timeouts) -> Result<Value, LlmError> {
    let bytes = body(response, timeouts).await?;
    serde_json::from_slice(&bytes).map_err(|error| malformed("the answer", &error))
}

/// JSON that is none. The text is not repeated: it may be what somebody said.
pub(crate) fn malformed(what: &str, error: &serde_json::Error) -> LlmError {
    let at = format!("{what} is no JSON of the API ({:?} in line {})", error.classify(), error.line());
    LlmError::new(ErrorKind::Malformed, at).uncertain()
}

/// The events of a streamed answer.
pub(crate) fn events(response: Response) -> impl Stream<Item = Result<Event, LlmError>> + Send + Unpin {
    Box::pin(response.bytes_stream().eventsource().map(|event| match event {
        Ok(event) => Ok(Event { name: event.event, data: event.data }),
        Err(eventsource_stream::EventStreamError::Transport(error)) => Err(failed(error, true)),
        Err(_) => Err(LlmError::new(ErrorKind::Malformed, "the stream holds no events").uncertain()),
    }))
}

/// The next part, unless the other side is silent for too long.
pub(crate) async fn idle<T>(next: impl Future<Output = T>, timeouts: &Timeouts) -> Result<T, LlmError> {
    tokio::time::timeout(timeouts.idle, next).await.map_err(|_| {
        LlmError::new(ErrorKind::Timeout, format!("the answer stood still for {:?}", timeouts.idle))
            .uncertain()
    })
}

/// The error of a stream that ended too early.
pub(crate) fn cut() -> LlmError {
    LlmError::new(ErrorKind::StreamCut, "the stream ended before the answer did").uncertain()
}

/// Cuts a whole call off after its longest time.
pub(crate) async fn within<T>(
    call: impl Future<Output = Result<T, LlmError>>,
    timeouts: &Timeouts,
) -> Result<T, LlmError> {
    tokio::time::timeout(timeouts.total, call).await.unwrap_or_else(|_| {
        Err(LlmError::new(ErrorKind::Timeout, format!("no whole answer in {:?}", timeouts.total)).uncertain())
    })
}
