//! Ways into a live session beside its own socket.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, get, post};
use domain::SessionId;
use domain::session::ControlMessage;
use rest::{Id, Posted, Problem, Trace};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::chat;
use crate::state::Shared;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(open_control).service(create_context);
}

/// A text that was taken.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "c1", "object": "context", "session_id": "sess_01938f6e0c3b7a54b1f2a0c4d5e6f708"
}))]
pub struct ContextView {
    /// Id of the text in its session.
    id: String,
    /// Always `context`.
    object: String,
    session_id: SessionId,
}

/// Watch and steer a live session.
///
/// A websocket of JSON text frames: the server tells everything that happens in the session, the caller may send what
/// the client may send. `openapi/websocket.md` lists both. It ends with the session.
#[utoipa::path(operation_id = "openSessionControl", tag = "sessions",
    params(("id" = SessionId, Path, description = "A live session.")),
    responses((status = 101, description = "The websocket is open.")),
    extensions(("x-required-scope" = json!("sessions:create"))))]
#[get("/v1/sessions/{id}/control")]
async fn open_control(
    state: Shared,
    req: HttpRequest,
    payload: Payload,
    id: Id<SessionId>,
    trace: Trace,
) -> Result<HttpResponse, Problem> {
    chat::control::open(&state, &req, payload, id.0, &trace).await
}

/// Inject a text into a live session.
///
/// The same as the client's own JSON message. A repeated id is taken once. 429 when the session's queue is full, 409
/// when the session is not live.
#[utoipa::path(operation_id = "createSessionContext", tag = "sessions", request_body = ControlMessage,
    params(("id" = SessionId, Path, description = "A live session.")),
    responses((status = 202, description = "It waits for its turn.", body = ContextView)),
    extensions(("x-required-scope" = json!("sessions:create"))))]
#[post("/v1/sessions/{id}/context")]
async fn create_context(
    state: Shared,
    id: Id<SessionId>,
    message: Posted<ControlMessage>,
    trace: Trace,
) -> Result<HttpResponse, Problem> {
    let taken: ContextView = chat::control::inject(&state, id.0, &message.body, &trace).await?;
    Ok(HttpResponse::Accepted().json(taken))
}
