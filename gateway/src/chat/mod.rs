//! The front door of live conversations: who may talk to what, then frames in both directions, unchanged.

pub mod control;
pub mod live;
mod pipe;
pub mod query;
pub mod registry;
pub mod ticket;
mod upstream;

use actix_web::http::header;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use domain::session::SessionOptions;
use domain::{ErrorCode, SessionId};
use rest::{Problem, Trace};
use store::sessions::{NewSession, Session};

use crate::auth::Scope;
use crate::auth::keyring::unauthenticated;
use crate::routes::models::default_model;
use crate::routes::sessions::{MAX_PROMPT_BYTES, find_model, find_voice};
use crate::state::Shared;
use query::ChatQuery;

/// The subprotocol that we speak; browsers offer it beside the ticket.
const PROTOCOL: &str = "ppx.v1";
const TICKET_PROTOCOL: &str = "ppx.ticket.";

/// Admits a websocket: credentials, session, a free slot of inference; only then the upgrade.
///
/// # Errors
/// Every refusal, as a problem before the upgrade.
pub async fn open(
    state: &Shared,
    req: &HttpRequest,
    payload: Payload,
    query: ChatQuery,
    path_ticket: Option<String>,
    trace: &Trace,
) -> Result<HttpResponse, Problem> {
    wants_websocket(req)?;
    let ticket = path_ticket.or_else(|| query.ticket.clone()).or_else(|| protocol_ticket(req));
    let (session, is_ours) = match ticket {
        Some(ticket) => {
            check_origin(state, req)?;
            (redeem(state, &ticket).await?, false)
        }
        None if req.headers().contains_key(header::AUTHORIZATION) => {
            state.keyring.authenticate(req).await?.require(Scope::SessionsCreate)?;
            (start(state, &query).await?, true)
        }
        None if state.auth.anonymous_chat => {
            check_origin(state, req)?;
            check_host(state, req)?;
            (start(state, &query).await?, true)
        }
        None => {
            return Err(unauthenticated(
                "no credentials: expected ?ticket=, /s/<ticket>/api/chat, the subprotocol ppx.ticket.<ticket>, or the \
                 header `Authorization: Bearer ppx_...`",
            ));
        }
    };
    let opened = connect(state, req, payload, session.id, trace).await;
    if let Err(refusal) = &opened {
        let settled = match refusal.code() {
            // Another socket holds the session.
            ErrorCode::Conflict => Ok(()),
            // Nobody else knows this session.
            _ if is_ours => store::sessions::end(&state.store, session.id, "refused", None).await,
            // The ticket may be tried again in its time.
            _ => store::sessions::give_back(&state.store, session.id, state.sessions.resume_for()).await,
        };
        if let Err(error) = settled {
            tracing::warn!(%error, session.id = %session.id, "cannot settle a refused session");
        }
    }
    opened
}

async fn connect(
    state: &Shared,
    req: &HttpRequest,
    payload: Payload,
    session: SessionId,
    trace: &Trace,
) -> Result<HttpResponse, Problem> {
    let live = state.live.enter(session).ok_or_else(|| {
        Problem::new(ErrorCode::Conflict, format!("session {session} has an open socket already"))
    })?;
    let upstream = upstream::connect(state, session, trace).await?;
    let (response, client, messages) = actix_ws::handle_with_protocols(req, payload, &[PROTOCOL])
        .map_err(|error| Problem::new(ErrorCode::InvalidRequest, format!("no websocket: {error}")))?;
    let pipe = pipe::Pipe {
        session,
        client,
        messages: messages.max_frame_size(state.gateway.max_message_bytes),
        upstream,
        state: state.clone(),
        live: Some(live),
    };
    actix_web::rt::spawn(pipe.run());
    Ok(response)
}

fn wants_websocket(req: &HttpRequest) -> Result<(), Problem> {
    let upgrade = req.headers().get(header::UPGRADE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if upgrade.to_ascii_lowercase().contains("websocket") {
        return Ok(());
    }
    Err(Problem::new(
        ErrorCode::InvalidRequest,
        "this path speaks websocket: expected the header `Upgrade: websocket`",
    ))
}

fn protocol_ticket(req: &HttpRequest) -> Option<String> {
    req.headers()
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .find_map(|p| p.trim().strip_prefix(TICKET_PROTOCOL))
        .map(str::to_owned)
}

/// A browser says which page opens the socket. Pages of other origins could use a ticket that leaked, or a gateway on
/// loopback that asks for nothing, so they must be listed.
fn check_origin(state: &Shared, req: &HttpRequest) -> Result<(), Problem> {
    let Some(origin) = req.headers().get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("");
    let own = req.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
    let host = origin.split_once("://").map_or("", |(_, host)| host);
    if (!host.is_empty() && host == own) || state.gateway.allowed_origins.iter().any(|o| o == origin) {
        return Ok(());
    }
    let shown: String = origin.chars().take(80).collect();
    Err(Problem::new(ErrorCode::Forbidden, format!("pages of {shown:?} may not open this socket")))
}

/// Without credentials a page whose name was pointed at this machine would be its own origin: the name must be ours.
fn check_host(state: &Shared, req: &HttpRequest) -> Result<(), Problem> {
    let host = req.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let listed = |origin: &String| origin.split_once("://").is_some_and(|(_, listed)| listed == host);
    if ["localhost", "127.0.0.1", "[::1]"].contains(&name) || state.gateway.allowed_origins.iter().any(listed)
    {
        return Ok(());
    }
    Err(Problem::new(
        ErrorCode::Forbidden,
        "without credentials this socket opens under a loopback name only",
    ))
}

async fn redeem(state: &Shared, ticket: &str) -> Result<Session, Problem> {
    store::sessions::redeem(&state.store, &ticket::hash(ticket))
        .await?
        .ok_or_else(|| unauthenticated("the ticket is unknown, was not used in time, or its session is over"))
}

/// Makes a session from the query and takes it live.
async fn start(state: &Shared, query: &ChatQuery) -> Result<Session, Problem> {
    let sampling = query.sampling()?;
    let text_prompt = query.text_prompt.clone().unwrap_or_default().replace('\0', " ");
    if text_prompt.len() > MAX_PROMPT_BYTES {
        let detail = format!(
            "query parameter \"text_prompt\": at most {MAX_PROMPT_BYTES} bytes, not {}",
            text_prompt.len()
        );
        return Err(Problem::new(ErrorCode::InvalidRequest, detail));
    }
    let model_id = match query.model.as_deref().filter(|m| !m.is_empty()) {
        Some(model) => find_model(state, model).await?,
        None => {
            let newest = default_model(&state.store).await?;
            newest.ok_or_else(|| Problem::new(ErrorCode::NotFound, "no model is registered yet"))?.id
        }
    };
    let voice = match query.voice_prompt.as_deref().filter(|v| !v.is_empty()) {
        Some(voice) => Some(find_voice(state, voice).await?),
        None => None,
    };
    let ticket = ticket::generate();
    let new = NewSession {
        id: SessionId::generate(),
        model_id,
        voice,
        text_prompt,
        sampling,
        options: SessionOptions::default(),
        ticket_sha256: ticket::hash(&ticket),
        ticket_ttl_s: state.gateway.ticket_ttl_seconds,
    };
    let mut tx = state.store.begin().await?;
    store::sessions::insert(&mut tx, &new).await?;
    store::commit(tx).await?;
    redeem(state, &ticket).await
}
