//! The websocket, as operations of the document.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, get};
use rest::{Asked, Problem, Trace};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::chat::{self, query::ChatQuery};
use crate::state::Shared;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(open_chat).service(open_chat_with_ticket);
}

/// Talk to a model.
///
/// A websocket with the binary protocol of PersonaPlex and JSON control frames; `openapi/websocket.md` describes both.
/// Refusals come before the upgrade, as problems. With a ticket the session is the one that the ticket was made for;
/// otherwise one is made from the query. Other query parameters are ignored, as players send some of their own.
#[utoipa::path(operation_id = "openChat", tag = "sessions", params(ChatQuery),
    responses((status = 101, description = "The websocket is open.")),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/api/chat")]
async fn open_chat(
    state: Shared,
    req: HttpRequest,
    payload: Payload,
    query: Asked<ChatQuery>,
    trace: Trace,
) -> Result<HttpResponse, Problem> {
    chat::open(&state, &req, payload, query.0, None, &trace).await
}

/// Talk to a model, with the ticket in the path.
///
/// For players that can only be given a base URL: `https://host/s/{ticket}`.
#[utoipa::path(operation_id = "openChatWithTicket", tag = "sessions",
    params(("ticket" = String, Path, description = "The session's ticket.")),
    responses((status = 101, description = "The websocket is open.")),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/s/{ticket}/api/chat")]
async fn open_chat_with_ticket(
    state: Shared,
    req: HttpRequest,
    payload: Payload,
    query: Asked<ChatQuery>,
    trace: Trace,
) -> Result<HttpResponse, Problem> {
    let ticket = req.match_info().get("ticket").unwrap_or("").to_owned();
    chat::open(&state, &req, payload, query.0, Some(ticket), &trace).await
}
