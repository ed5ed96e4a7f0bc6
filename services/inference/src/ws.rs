//! The internal listener. Every refusal comes before the upgrade.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::Context;
use chassis::CancellationToken;
use chassis::secrecy::{ExposeSecret, SecretString};
use chassis::settings::Sessions;
use chassis::telemetry::TraceContext;
use domain::session::SessionPace;
use domain::{ErrorCode, SessionId};
use store::Store;
use subtle::ConstantTimeEq;
use tracing::Instrument;

use crate::control;
use crate::engine::{Engine, Pace, Place};
use crate::prepare::{Catalog, Prepared};
use crate::problem::problem;
use crate::puppeteers::Puppeteers;
use crate::serving;
use crate::session::hub::Hub;
use crate::session::rows::RowStore;
use crate::session::{self, Socket};
use crate::{InferenceError, InferenceSettings};

/// Header that carries the internal token.
pub const TOKEN_HEADER: &str = "x-ppx-internal";
/// Longest message of a client.
const MAX_MESSAGE_BYTES: usize = 256 * 1_024;
/// Kernel buffer per connection: a few seconds of audio, so that a client that stops reading is noticed.
const SEND_BUFFER_BYTES: u32 = 16 * 1_024;
/// Bytes that the HTTP layer gathers before it waits for the kernel; its usual 32 KiB are eight seconds of audio.
const WRITE_BUFFER_BYTES: usize = 4 * 1_024;
/// How long live sessions may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// What every connection uses.
pub struct Shared {
    /// Rows and files.
    pub catalog: Catalog,
    /// For the end of a session.
    pub store: Store,
    /// The models.
    pub engine: Engine,
    /// What callers must carry.
    pub token: SecretString,
    /// Limits.
    pub settings: InferenceSettings,
    /// How long a lost session may be taken up again.
    pub sessions: Sessions,
    /// What the models remember of live sessions, for another process.
    pub rows: RowStore,
    /// Who may stand beside a session.
    pub puppeteers: Puppeteers,
    /// Sessions with an open socket.
    pub live: LiveSessions,
    /// Cancelled when the process is to end.
    pub shutdown: CancellationToken,
}

/// Sessions with an open socket in this process.
#[derive(Clone, Default)]
pub struct LiveSessions(Arc<Mutex<HashMap<SessionId, Option<Arc<Hub>>>>>);

/// Keeps a session's place while it lives.
pub(crate) struct LiveSession {
    sessions: LiveSessions,
    id: SessionId,
}

impl LiveSessions {
    /// Number of open sockets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What a live session can be reached by.
    pub(crate) fn hub(&self, id: SessionId) -> Option<Arc<Hub>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned().flatten()
    }

    fn enter(&self, id: SessionId) -> Option<LiveSession> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains_key(&id) {
            return None;
        }
        open.insert(id, None);
        Some(LiveSession { sessions: self.clone(), id })
    }
}

impl LiveSession {
    /// The session can be reached by this from now on.
    pub(crate) fn attach(&self, hub: Arc<Hub>) {
        self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id, Some(hub));
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Binds the listener.
///
/// # Errors
/// When the address cannot be used.
pub fn listen(bind: &str, port: u16) -> anyhow::Result<TcpListener> {
    let cannot = || format!("cannot listen on {bind}:{port} ([inference])");
    let address: SocketAddr =
        (bind, port).to_socket_addrs().with_context(cannot)?.next().with_context(cannot)?;
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address).with_context(cannot)?;
    Ok(socket.listen(1_024).with_context(cannot)?.into_std()?)
}

/// Serves until shutdown, then lets live sessions say good-bye.
///
/// # Errors
/// When the server ends by itself.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) -> anyhow::Result<()> {
    let (live, shutdown) = (shared.live.clone(), shared.shutdown.clone());
    let data = web::Data::from(shared);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(data.clone())
            .route("/internal/sessions/{id}/socket", web::get().to(open_socket))
            .route("/internal/sessions/{id}/control", web::get().to(control::open))
            .route("/internal/sessions/{id}/context", web::post().to(control::inject))
            .configure(serving::routes)
            .default_service(web::to(no_route))
    })
    .workers(2)
    .tcp_nodelay(true)
    .h1_write_buffer_size(WRITE_BUFFER_BYTES)
    .disable_signals()
    .listen(listener)?
    .run();
    let handle = server.handle();
    let mut running = tokio::spawn(server);
    tokio::select! {
        ended = &mut running => anyhow::bail!("the internal listener ended: {ended:?}"),
        () = shutdown.cancelled() => {}
    }
    let drained = async {
        while live.count() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!(sessions = live.count(), "sessions did not end in time");
    }
    handle.stop(false).await;
    let _ = tokio::time::timeout(DRAIN, running).await;
    Ok(())
}

async fn no_route(request: HttpRequest) -> HttpResponse {
    problem(ErrorCode::RouteNotFound, request.path(), trace_of(&request).trace_id())
}

pub(crate) fn trace_of(request: &HttpRequest) -> TraceContext {
    let header = request.headers().get("traceparent").and_then(|v| v.to_str().ok());
    header.and_then(TraceContext::parse).unwrap_or_else(TraceContext::generate)
}

async fn open_socket(
    request: HttpRequest,
    body: web::Payload,
    id: web::Path<String>,
    shared: web::Data<Shared>,
) -> HttpResponse {
    let received = Instant::now();
    let trace = trace_of(&request);
    let span = tracing::info_span!("session", id = %id, trace_id = trace.trace_id());
    let admitted = admit(&request, &id, &shared).instrument(span.clone()).await;
    let (prepared, place, live) = match admitted {
        Ok(admitted) => admitted,
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
    let socket = Socket { sender, stream };
    let task = session::run(shared.into_inner(), prepared, place, live, socket, received);
    actix_web::rt::spawn(task.instrument(span));
    response
}

/// A refusal before the upgrade.
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) detail: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

impl From<InferenceError> for Refusal {
    fn from(error: InferenceError) -> Self {
        let code = error.code();
        if code.status() >= 500 {
            tracing::error!(%error, "the session cannot be opened");
        }
        Self::new(code, error.to_string())
    }
}

/// Refuses who does not carry the internal token.
pub(crate) fn check_token(request: &HttpRequest, shared: &Shared) -> Result<(), Refusal> {
    let carried = request.headers().get(TOKEN_HEADER).map_or(&[][..], |v| v.as_bytes());
    if bool::from(carried.ct_eq(shared.token.expose_secret().as_bytes())) {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::Unauthenticated, "the internal token is missing or wrong"))
}

/// Everything that can refuse a session: token, id, shutdown, places, row, files, prompt.
async fn admit(
    request: &HttpRequest,
    id: &str,
    shared: &Shared,
) -> Result<(Prepared, Place, LiveSession), Refusal> {
    check_token(request, shared)?;
    let id: SessionId = id.parse().map_err(|_| Refusal::new(ErrorCode::NotFound, "no such session"))?;
    if shared.shutdown.is_cancelled() {
        return Err(Refusal::new(ErrorCode::Unavailable, "the process is going down"));
    }
    let full = || {
        let detail = format!("all {} slots are in use", shared.settings.max_sessions);
        Refusal::new(ErrorCode::SessionCapacity, detail)
    };
    let place = shared.engine.reserve().ok_or_else(full)?;
    let mut prepared = shared.catalog.prepare(id, shared.settings.queue_limits()).await?;
    prepared.request.pace = match prepared.options.pace {
        SessionPace::Realtime => shared.settings.realtime(),
        SessionPace::Audio => Pace::Audio,
    };
    if let Some(spec) = &prepared.options.puppeteer {
        prepared.puppeteer = Some(shared.puppeteers.make(spec).await?);
    }
    let live = shared.live.enter(id).ok_or(InferenceError::SessionInUse(id))?;
    Ok((prepared, place, live))
}
