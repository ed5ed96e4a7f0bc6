//! The socket to inference, opened before the client's: a refusal there is still an HTTP answer here.

use std::time::Duration;

use chassis::secrecy::ExposeSecret;
use domain::{ErrorCode, SessionId};
use rest::{Problem, Trace};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::state::State;

/// Longest wait for inference to accept; a model that is not loaded yet is loaded first.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds to wait when every slot is taken and inference does not say.
const FULL_RETRY_SECONDS: u64 = 2;

/// The open socket.
pub(super) type Upstream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What inference says when it refuses.
#[derive(Deserialize)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) detail: String,
}

/// Opens the socket of a session at the first process that takes it; one that is full or gone is passed over.
pub(super) async fn connect(state: &State, session: SessionId, trace: &Trace) -> Result<Upstream, Problem> {
    let mut refused = None;
    for base in state.registry.candidates().await {
        match connect_to(state, &base, &format!("{session}/socket"), trace).await {
            // What the first one said counts: the others are only tried for it.
            Err(problem) if problem.code().status() == 503 => refused = refused.or(Some(problem)),
            answered => return answered,
        }
    }
    Err(refused.unwrap_or_else(|| Problem::internal(anyhow::anyhow!("no inference address is configured"))))
}

/// Opens a control socket at the process that holds the session; `None` when none of those that answer does.
pub(super) async fn connect_beside(
    state: &State,
    session: SessionId,
    trace: &Trace,
) -> Result<Option<Upstream>, Problem> {
    let (mut reached, mut failed) = (false, None);
    for base in state.registry.candidates().await {
        match connect_to(state, &base, &format!("{session}/control"), trace).await {
            Ok(upstream) => return Ok(Some(upstream)),
            Err(problem) if problem.code() == ErrorCode::NotFound => reached = true,
            Err(problem) => failed = Some(problem),
        }
    }
    match failed {
        Some(problem) if !reached => Err(problem),
        _ => Ok(None),
    }
}

/// `path` is that below the internal sessions.
async fn connect_to(state: &State, base: &str, path: &str, trace: &Trace) -> Result<Upstream, Problem> {
    let address = format!("{}/internal/sessions/{path}", base.trim_end_matches('/'));
    let address = address.replacen("http", "ws", 1);
    let mut request = address
        .into_client_request()
        .map_err(|error| Problem::internal(anyhow::anyhow!("inference address {base:?}: {error}")))?;
    let mut token = HeaderValue::from_str(state.internal_token.expose_secret())
        .map_err(|_| Problem::internal(anyhow::anyhow!("[internal].token is not a header value")))?;
    token.set_sensitive(true);
    request.headers_mut().insert("x-ppx-internal", token);
    if let Some(value) = trace.traceparent().and_then(|t| HeaderValue::from_str(&t).ok()) {
        request.headers_mut().insert("traceparent", value);
    }
    let limit = Some(state.gateway.max_message_bytes);
    let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
    let call = tokio_tungstenite::connect_async_with_config(request, Some(config), true);
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(answer))) => Err(refusal(&answer)),
        Ok(Err(error)) => Err(Problem::unavailable("inference", anyhow::anyhow!("{base}: {error}"))),
        Err(_) => {
            Err(Problem::unavailable("inference", anyhow::anyhow!("{base}: no answer in {PATIENCE:?}")))
        }
    }
}

/// Passes a refusal on when it is about the session; one about us is our failure.
fn refusal(answer: &Response<Option<Vec<u8>>>) -> Problem {
    let status = answer.status().as_u16();
    let told = answer.body().as_deref().and_then(|b| serde_json::from_slice::<Refusal>(b).ok());
    let wait = answer
        .headers()
        .get(tungstenite::http::header::RETRY_AFTER)
        .and_then(|v| v.to_str().ok()?.parse().ok())
        .unwrap_or(FULL_RETRY_SECONDS);
    match (status, told) {
        (503, Some(told)) if told.code.status() == 503 => {
            Problem::new(told.code, told.detail).retry_after(wait)
        }
        (503, _) => Problem::new(ErrorCode::SessionCapacity, "every session slot is taken").retry_after(wait),
        (404 | 409 | 422, Some(told)) if told.code.status() < 500 => Problem::new(told.code, told.detail),
        _ => Problem::internal(anyhow::anyhow!("inference refused the session with status {status}")),
    }
}
