//! Control sockets and single texts: passed on to the process that holds the session. Which one that is, the processes
//! are asked for in turn; they are few, and each knows its own sessions.

use std::time::Duration;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use chassis::secrecy::ExposeSecret;
use domain::session::ControlMessage;
use domain::{ErrorCode, SessionId};
use rest::{Problem, Trace};
use serde::de::DeserializeOwned;

use super::upstream::{self, Refusal};
use super::{PROTOCOL, pipe, wants_websocket};
use crate::state::{Shared, State};

/// Longest wait for a process.
const PATIENCE: Duration = Duration::from_secs(5);
/// Seconds after which a full queue may have room.
const QUEUE_RETRY_SECONDS: u64 = 1;

/// Opens a control socket.
///
/// # Errors
/// 404 without such a session, 409 when it is not live.
pub async fn open(
    state: &Shared,
    req: &HttpRequest,
    payload: Payload,
    session: SessionId,
    trace: &Trace,
) -> Result<HttpResponse, Problem> {
    wants_websocket(req)?;
    store::sessions::get(&state.store, session).await?;
    let upstream = upstream::connect_beside(state, session, trace).await?.ok_or_else(|| not_live(session))?;
    let (response, client, messages) = actix_ws::handle_with_protocols(req, payload, &[PROTOCOL])
        .map_err(|error| Problem::new(ErrorCode::InvalidRequest, format!("no websocket: {error}")))?;
    let pipe = pipe::Pipe {
        session,
        client,
        messages: messages.max_frame_size(state.gateway.max_message_bytes),
        upstream,
        state: state.clone(),
        live: None,
    };
    actix_web::rt::spawn(pipe.run());
    Ok(response)
}

/// Hands a text to the session's queue and gives what the process says.
///
/// # Errors
/// What the queue refuses; 404 without such a session, 409 when it is not live.
pub async fn inject<T: DeserializeOwned>(
    state: &State,
    session: SessionId,
    message: &ControlMessage,
    trace: &Trace,
) -> Result<T, Problem> {
    store::sessions::get(&state.store, session).await?;
    let mut reached = false;
    for base in state.registry.candidates().await {
        let url = format!("{}/internal/sessions/{session}/context", base.trim_end_matches('/'));
        let request = state.http.post(url).timeout(PATIENCE).json(message);
        let request = request.header("x-ppx-internal", state.internal_token.expose_secret());
        let request = request.header("traceparent", trace.traceparent().unwrap_or_default());
        let Ok(answer) = request.send().await else { continue };
        reached = true;
        let status = answer.status();
        if status.is_success() {
            return answer.json().await.map_err(Problem::internal);
        }
        if status.as_u16() == 404 {
            continue;
        }
        let told: Refusal = answer.json().await.map_err(Problem::internal)?;
        return Err(match told.code {
            ErrorCode::Unauthenticated | ErrorCode::Internal => {
                Problem::internal(anyhow::anyhow!(told.detail))
            }
            ErrorCode::RateLimited => Problem::new(told.code, told.detail).retry_after(QUEUE_RETRY_SECONDS),
            code => Problem::new(code, told.detail),
        });
    }
    if reached {
        return Err(not_live(session));
    }
    Err(Problem::unavailable("inference", anyhow::anyhow!("no inference process answers")))
}

fn not_live(session: SessionId) -> Problem {
    Problem::new(ErrorCode::Conflict, format!("session {session} is not live"))
}
