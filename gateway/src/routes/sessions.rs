//! Sessions: a ticket for one live conversation.

use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Duration, Utc};
use domain::puppeteer::PuppeteerSpec;
use domain::run::FieldFault;
use domain::session::{SamplingParams, SessionOptions, SessionPace, SessionState, SessionStats};
use domain::{ErrorCode, ModelId, SessionId};
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem};
use serde::{Deserialize, Serialize};
use store::sessions::{NewSession, Session};
use store::{StoreError, Tx};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::chat::ticket;
use crate::state::{Shared, State};

/// Longest brief, in bytes.
pub(crate) const MAX_PROMPT_BYTES: usize = 8_192;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(create_session).service(list_sessions).service(get_session);
}

/// Request to open a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "model": "tiny", "voice": "flite-slt", "text_prompt": "ROLE: insurance broker\nSTYLE: brief",
    "sampling": {"text_temperature": 0.7, "seed": 7}
}))]
pub struct CreateSession {
    /// Id or name of the model.
    model: String,
    /// Name of a voice; without one the agent has the model's own.
    voice: Option<String>,
    /// The brief, without tags.
    #[schema(max_length = 8192)]
    text_prompt: Option<String>,
    /// How tokens are drawn; fields left out have their defaults.
    sampling: Option<SamplingParams>,
    /// `realtime` (default) keeps an 80 ms clock, `audio` answers as fast as audio comes.
    pace: Option<SessionPace>,
    /// Who injects facts beside the client.
    puppeteer: Option<PuppeteerSpec>,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    id: SessionId,
    /// Always `session`.
    #[schema(example = "session")]
    object: &'static str,
    state: SessionState,
    model_id: ModelId,
    voice: Option<String>,
    sampling: SamplingParams,
    pace: SessionPace,
    puppeteer: Option<PuppeteerSpec>,
    /// Measured facts, once over.
    stats: Option<SessionStats>,
    /// Why it ended.
    close_reason: Option<String>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
}

/// A new session with its ticket.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedSessionView {
    id: SessionId,
    /// Always `session`.
    #[schema(example = "session")]
    object: &'static str,
    state: SessionState,
    model_id: ModelId,
    voice: Option<String>,
    sampling: SamplingParams,
    created_at: DateTime<Utc>,
    /// Opens the websocket of this session and of no other. Shown once: `null` when the answer is repeated for an
    /// `Idempotency-Key`.
    ticket: Option<String>,
    /// First use at the latest.
    ticket_expires_at: DateTime<Utc>,
    /// Path of the websocket with the ticket; `null` when the ticket is.
    #[schema(example = "/api/chat?ticket=...")]
    url: Option<String>,
}

impl From<Session> for SessionView {
    fn from(s: Session) -> Self {
        Self {
            id: s.id,
            object: "session",
            state: s.state,
            model_id: s.model_id,
            voice: s.voice,
            sampling: s.sampling,
            pace: s.options.pace,
            puppeteer: s.options.puppeteer,
            stats: s.stats,
            close_reason: s.close_reason,
            created_at: s.created_at,
            started_at: s.started_at,
            ended_at: s.ended_at,
        }
    }
}

/// Every parameter out of its range.
fn faults(sampling: &SamplingParams) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    let mut check = |name: &str, value: f64, low: f64, high: f64| {
        if !(low..=high).contains(&value) {
            let detail = format!("must be {low} to {high}, not {value}");
            faults.push(FieldFault { pointer: format!("/sampling/{name}"), detail });
        }
    };
    check("text_temperature", sampling.text_temperature, 0.0, 1.5);
    check("text_topk", f64::from(sampling.text_topk), 1.0, 500.0);
    check("audio_temperature", sampling.audio_temperature, 0.0, 1.5);
    check("audio_topk", f64::from(sampling.audio_topk), 1.0, 2048.0);
    faults
}

/// The model of this id or name.
///
/// # Errors
/// 404 that names some that there are.
pub(crate) async fn find_model(state: &State, model: &str) -> Result<ModelId, Problem> {
    match store::models::find(&state.store, &model.replace('\0', "")).await {
        Ok(found) => Ok(found.id),
        Err(StoreError::NotFound { .. }) => {
            let shown: String = model.chars().take(80).collect();
            let others = super::models::some_names(&state.store).await?;
            Err(Problem::new(ErrorCode::NotFound, format!("there is no model {shown:?}; {others}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// The registered name of a voice. Names come from the table and nowhere else; a player may add `.pt` or `.wav`.
///
/// # Errors
/// 404 that names some that there are.
pub(crate) async fn find_voice(state: &State, voice: &str) -> Result<String, Problem> {
    let bare = voice.strip_suffix(".pt").or_else(|| voice.strip_suffix(".wav")).unwrap_or(voice);
    for name in [voice, bare] {
        match store::voices::find(&state.store, &name.replace('\0', "")).await {
            Ok(found) => return Ok(found.name),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let page = store::PageRequest { limit: 20, after: None, descending: false };
    let names: Vec<_> =
        store::voices::list(&state.store, page).await?.items.into_iter().map(|v| v.name).collect();
    let others = if names.is_empty() {
        "no voice is registered yet".into()
    } else {
        format!("there are {}", names.join(", "))
    };
    let shown: String = voice.chars().take(80).collect();
    Err(Problem::new(ErrorCode::NotFound, format!("there is no voice {shown:?}; {others}")))
}

/// Open a session.
///
/// The answer holds a ticket for the websocket: first use within the given time, then valid until the session ends.
#[utoipa::path(operation_id = "createSession", tag = "sessions", request_body = CreateSession,
    responses((status = 201, description = "The session waits for its socket.", body = CreatedSessionView)),
    extensions(("x-required-scope" = json!("sessions:create"))))]
#[post("/v1/sessions")]
async fn create_session(state: Shared, posted: Posted<CreateSession>) -> Result<HttpResponse, Problem> {
    let new_ticket = ticket::generate();
    let prepare = async |body: CreateSession| {
        let sampling = body.sampling.unwrap_or_default();
        let text_prompt = body.text_prompt.unwrap_or_default();
        let mut faults = faults(&sampling);
        if text_prompt.len() > MAX_PROMPT_BYTES || text_prompt.contains('\0') {
            let detail =
                format!("must be at most {MAX_PROMPT_BYTES} bytes without NUL, not {}", text_prompt.len());
            faults.push(FieldFault { pointer: "/text_prompt".into(), detail });
        }
        if let Some(spec) = &body.puppeteer {
            faults.extend(library::puppeteers::faults(&state.library, spec).await?);
        }
        if !faults.is_empty() {
            return Err(Problem::fields(faults));
        }
        let model_id = find_model(&state, &body.model).await?;
        let voice = match body.voice.as_deref().filter(|v| !v.is_empty()) {
            Some(voice) => Some(find_voice(&state, voice).await?),
            None => None,
        };
        Ok(NewSession {
            id: SessionId::generate(),
            model_id,
            voice,
            text_prompt,
            sampling,
            options: SessionOptions { pace: body.pace.unwrap_or_default(), puppeteer: body.puppeteer },
            ticket_sha256: ticket::hash(&new_ticket),
            ticket_ttl_s: state.gateway.ticket_ttl_seconds,
        })
    };
    let write = async |tx: &mut Tx, new: NewSession| {
        store::sessions::insert(tx, &new).await?;
        let created_at = store::transaction_time(tx).await?;
        let view = CreatedSessionView {
            id: new.id,
            object: "session",
            state: SessionState::Created,
            model_id: new.model_id,
            voice: new.voice,
            sampling: new.sampling,
            created_at,
            url: Some(format!("/api/chat?ticket={new_ticket}")),
            ticket: Some(new_ticket.clone()),
            ticket_expires_at: created_at + Duration::seconds(i64::from(new.ticket_ttl_s)),
        };
        Ok(Created { location: format!("/v1/sessions/{}", new.id), view })
    };
    posted.once(&state.store, &["ticket", "url"], prepare, write).await
}

/// List sessions.
#[utoipa::path(operation_id = "listSessions", tag = "sessions", params(PageQuery),
    responses((status = 200, description = "A page of sessions.", body = List<SessionView>)),
    extensions(("x-required-scope" = json!("sessions:read"))))]
#[get("/v1/sessions")]
async fn list_sessions(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::sessions::list(&state.store, page.0.request(SessionId::uuid)?).await?;
    let views = page.items.into_iter().map(SessionView::from).collect();
    Ok(List::page(views, |v: &SessionView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a session.
#[utoipa::path(operation_id = "getSession", tag = "sessions", params(("id" = SessionId, Path, description = "The session.")),
    responses((status = 200, description = "The session.", body = SessionView)),
    extensions(("x-required-scope" = json!("sessions:read"))))]
#[get("/v1/sessions/{id}")]
async fn get_session(state: Shared, id: Id<SessionId>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(SessionView::from(store::sessions::get(&state.store, id.0).await?)))
}
