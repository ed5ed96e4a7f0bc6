//! The ways into a live session beside its own socket: a control socket, and one text at a time over HTTP.
//!
//! A control socket speaks JSON in text frames both ways: it is told everything that happens and may send what the
//! client may send. The gateway checks who may open one.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, Session};
use bytes::Bytes;
use domain::session::{ControlMessage, SessionEvent};
use domain::{ErrorCode, SessionId};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::problem::problem;
use crate::session::hub::{Hub, Verdict};
use crate::ws::{Refusal, Shared, check_token, trace_of};

/// How long a controller may take to read one event.
const PATIENCE: Duration = Duration::from_secs(4);
/// Time between two pings.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Longest message of a controller.
const MAX_MESSAGE_BYTES: usize = 64 * 1_024;

/// `GET /internal/sessions/{id}/control`
pub(crate) async fn open(
    request: HttpRequest,
    body: web::Payload,
    id: web::Path<String>,
    shared: web::Data<Shared>,
) -> HttpResponse {
    let trace = trace_of(&request);
    let hub = match admit(&request, &id, &shared) {
        Ok(hub) => hub,
        Err(refusal) => return problem(refusal.code, &refusal.detail, trace.trace_id()),
    };
    let (response, sender, stream) = match actix_ws::handle(&request, body) {
        Ok(upgraded) => upgraded,
        Err(error) => return problem(ErrorCode::InvalidRequest, &error.to_string(), trace.trace_id()),
    };
    let stream = stream
        .max_frame_size(MAX_MESSAGE_BYTES)
        .aggregate_continuations()
        .max_continuation_size(MAX_MESSAGE_BYTES);
    actix_web::rt::spawn(control(hub, sender, stream));
    response
}

/// `POST /internal/sessions/{id}/context`
pub(crate) async fn inject(
    request: HttpRequest,
    body: Bytes,
    id: web::Path<String>,
    shared: web::Data<Shared>,
) -> HttpResponse {
    let trace = trace_of(&request);
    let refuse = |code, detail: &str| problem(code, detail, trace.trace_id());
    let hub = match admit(&request, &id, &shared) {
        Ok(hub) => hub,
        Err(refusal) => return refuse(refusal.code, &refusal.detail),
    };
    let (text, mut how) = match serde_json::from_slice(&body) {
        Ok(ControlMessage::Context { text, how }) => (text, how),
        Err(error) => return refuse(ErrorCode::InvalidRequest, &error.to_string()),
    };
    let id = how.id.get_or_insert_with(|| format!("ctx_{}", uuid::Uuid::new_v4().as_simple())).clone();
    match hub.inject(&text, how).await {
        Verdict::Answered => {
            HttpResponse::Accepted().json(json!({ "id": id, "object": "context", "session_id": hub.id }))
        }
        Verdict::Flood => refuse(ErrorCode::RateLimited, "too many messages for this session"),
        Verdict::Refused(refusal) => {
            let detail = format!("the text is refused: {}", refusal.code);
            match refusal.code {
                "queue_full" | "rate_limited" => refuse(ErrorCode::RateLimited, &detail),
                "ended" => refuse(ErrorCode::Conflict, &detail),
                _ => refuse(ErrorCode::ValidationFailed, &detail),
            }
        }
    }
}

fn admit(request: &HttpRequest, id: &str, shared: &Shared) -> Result<Arc<Hub>, Refusal> {
    check_token(request, shared)?;
    let id: SessionId = id.parse().map_err(|_| Refusal::new(ErrorCode::NotFound, "no such session"))?;
    let here = shared.live.hub(id);
    here.ok_or_else(|| Refusal::new(ErrorCode::NotFound, format!("session {id} is not live in this process")))
}

/// Works until either side ends.
async fn control(hub: Arc<Hub>, mut sender: Session, mut stream: AggregatedMessageStream) {
    let mut events = hub.subscribe();
    let mut pings = tokio::time::interval(PING_EVERY);
    let why = loop {
        let sent = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => send(&mut sender, &event).await,
                // It reads too slowly: what it missed it can read from the session afterwards.
                Err(RecvError::Lagged(_)) => Ok(()),
                Err(RecvError::Closed) => break CloseCode::Normal,
            },
            _ = pings.tick() => settle(timeout(PATIENCE, sender.ping(b"")).await),
            message = stream.recv() => match message {
                Some(Ok(AggregatedMessage::Text(text))) => match hub.message(&text).await {
                    Verdict::Flood => break CloseCode::Policy,
                    Verdict::Answered | Verdict::Refused(_) => Ok(()),
                },
                Some(Ok(AggregatedMessage::Binary(_))) => break CloseCode::Unsupported,
                Some(Ok(AggregatedMessage::Ping(payload))) => {
                    settle(timeout(PATIENCE, sender.pong(&payload)).await)
                }
                Some(Ok(AggregatedMessage::Pong(_))) => Ok(()),
                Some(Ok(AggregatedMessage::Close(_))) | None => break CloseCode::Normal,
                Some(Err(_)) => break CloseCode::Protocol,
            },
        };
        if sent.is_err() {
            return;
        }
        // The session's own task holds a hub too while it lives.
        if Arc::strong_count(&hub) == 1 {
            break CloseCode::Normal;
        }
    };
    let reason = CloseReason { code: why, description: None };
    let _ = timeout(PATIENCE, sender.close(Some(reason))).await;
}

async fn send(sender: &mut Session, event: &SessionEvent) -> Result<(), ()> {
    let text = serde_json::to_string(event).expect("an event is plain data");
    settle(timeout(PATIENCE, sender.text(text)).await)
}

fn settle(sent: Result<Result<(), actix_ws::Closed>, tokio::time::error::Elapsed>) -> Result<(), ()> {
    match sent {
        Ok(Ok(())) => Ok(()),
        _ => Err(()),
    }
}
