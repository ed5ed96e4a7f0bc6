//! The life of one socket: prompt, handshake, frames, end.
//!
//! One task does everything in turn: it reads a message only when all audio of the message before is answered. So a
//! client that sends faster than the model works is slowed down by its own socket, and nothing piles up.

mod clock;
mod outbox;
mod talk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_ws::{AggregatedMessage, AggregatedMessageStream, ProtocolError};
use bytes::Bytes;
use domain::frame::SAMPLE_RATE;
use domain::session::SessionEvent;
use store::Store;

use crate::engine::{Conversation, OpenRequest, Place};
use crate::inbox::Inbox;
use crate::prepare::Prepared;
use crate::protocol::{self, ClientMessage, Ending};
use crate::stats::Tally;
use crate::ws::{LiveSession, Shared};
use crate::{InferenceError, context::FloodGate};
use clock::Clock;
use outbox::Outbox;
use talk::Voice;

/// How often time limits are looked at.
const TICK: Duration = Duration::from_secs(1);
/// JSON messages kept before the handshake.
const EARLY_MESSAGES: usize = 64;
/// How long the client may take to answer our close frame.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The two halves of an upgraded socket.
pub(crate) struct Socket {
    pub(crate) sender: actix_ws::Session,
    pub(crate) stream: AggregatedMessageStream,
}

/// A message that matters.
enum Incoming {
    Audio(Bytes),
    Json(String),
    End,
}

struct Session {
    shared: Arc<Shared>,
    outbox: Outbox,
    stream: AggregatedMessageStream,
    tick: tokio::time::Interval,
    clock: Clock,
    inbox: Inbox,
    gate: FloodGate,
    tally: Tally,
    /// Events go only to clients that have sent JSON.
    wants_events: bool,
    early: Vec<String>,
}

/// Runs a session from the upgrade to its last row. `received` is when the request came.
pub(crate) async fn run(
    shared: Arc<Shared>,
    prepared: Prepared,
    place: Place,
    live: LiveSession,
    socket: Socket,
    received: Instant,
) {
    metrics::gauge!("ppx_sessions_live").increment(1.0);
    let id = prepared.id;
    let store = shared.store.clone();
    let inbox = match Inbox::new() {
        Ok(inbox) => inbox,
        Err(error) => {
            tracing::error!(%error, "cannot set up the opus decoder");
            Outbox::new(socket.sender).close(Ending::ModelError.close()).await;
            end_row(&store, id, Ending::ModelError, &Tally::default().stats(0, 0)).await;
            metrics::gauge!("ppx_sessions_live").decrement(1.0);
            return;
        }
    };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut session = Session {
        clock: Clock::new(received, &shared.settings),
        outbox: Outbox::new(socket.sender),
        stream: socket.stream,
        tick,
        inbox,
        gate: FloodGate::new(received),
        tally: Tally::default(),
        wants_events: false,
        early: Vec::new(),
        shared,
    };
    let ending = session.live(prepared, place).await;
    let stats = session.tally.stats(session.inbox.bad_pages(), session.inbox.dropped_ms());
    if session.wants_events && ending.is_heard() {
        let _ = session.outbox.send(protocol::event(&SessionEvent::Stats(stats.clone()))).await;
    }
    // Before the close frame, so that a client that asks for the session afterwards finds it ended.
    let stored = tokio::time::timeout(CLOSE_PATIENCE, end_row(&store, id, ending, &stats)).await;
    session.close(ending).await;
    let reason = ending.reason();
    tracing::info!(session = %id, reason, frames = stats.frames, p99_ms = stats.frame_ms_p99, "session ended");
    metrics::counter!("ppx_sessions_ended_total", "reason" => reason).increment(1);
    metrics::gauge!("ppx_sessions_live").decrement(1.0);
    if stored != Ok(true) {
        // Changes nothing when the first try arrived after all.
        end_row(&store, id, ending, &stats).await;
    }
    drop(live);
}

impl Session {
    /// Opens and talks; the conversation's place is free again when this returns.
    async fn live(&mut self, prepared: Prepared, place: Place) -> Ending {
        let mut conversation = match self.open(prepared.request, place).await {
            Ok(conversation) => conversation,
            Err(ending) => return ending,
        };
        let mut voice = match Voice::new(prepared.tokenizer) {
            Ok(voice) => voice,
            Err(ending) => return ending,
        };
        let ending = match self.begin(&mut voice, &mut conversation).await {
            Ok(()) => self.talk(&mut voice, &mut conversation).await,
            Err(ending) => ending,
        };
        drop(conversation);
        if ending.is_heard() {
            let _ = self.flush(voice).await;
        }
        ending
    }

    /// Feeds the prompt while listening: early audio is kept, a client that leaves frees its place at once.
    async fn open(&mut self, request: OpenRequest, place: Place) -> Result<Conversation, Ending> {
        let shared = Arc::clone(&self.shared);
        let seconds = usize::try_from(shared.settings.max_early_audio_seconds).unwrap_or(usize::MAX);
        let limit = seconds.saturating_mul(SAMPLE_RATE as usize);
        let mut opening = std::pin::pin!(shared.engine.open(request, place));
        loop {
            tokio::select! {
                biased;
                () = shared.shutdown.cancelled() => return Err(Ending::Draining),
                opened = &mut opening => return opened.map_err(|error| refused(&error)),
                _ = self.tick.tick() => {
                    self.clock.waiting(Instant::now());
                    self.check_time().await?;
                }
                message = self.stream.recv() => match self.take(message).await? {
                    Some(Incoming::Audio(bytes)) => self.inbox.push_early(&bytes, limit),
                    Some(Incoming::Json(_)) if self.early.len() >= EARLY_MESSAGES => return Err(Ending::Flood),
                    Some(Incoming::Json(text)) => self.early.push(text),
                    Some(Incoming::End) => self.inbox.end(),
                    None => {}
                },
            }
        }
    }

    /// Time limits and pings.
    async fn check_time(&mut self) -> Result<(), Ending> {
        let now = Instant::now();
        self.clock.check(now)?;
        if self.clock.ping_due(now) { self.outbox.ping().await } else { Ok(()) }
    }

    /// Sorts one message of the socket; answers pings.
    async fn take(
        &mut self,
        message: Option<Result<AggregatedMessage, ProtocolError>>,
    ) -> Result<Option<Incoming>, Ending> {
        let message = message.ok_or(Ending::ClientGone)?.map_err(|error| broken(&error))?;
        let now = Instant::now();
        match message {
            AggregatedMessage::Binary(bytes) => {
                self.clock.busy(now);
                Ok(match protocol::parse(&bytes) {
                    ClientMessage::Audio(audio) => Some(Incoming::Audio(audio)),
                    ClientMessage::End => Some(Incoming::End),
                    ClientMessage::Unknown => None,
                })
            }
            AggregatedMessage::Text(text) => {
                self.clock.busy(now);
                self.wants_events = true;
                Ok(Some(Incoming::Json(text.to_string())))
            }
            AggregatedMessage::Ping(payload) => {
                self.clock.heard(now);
                self.outbox.pong(&payload).await?;
                Ok(None)
            }
            AggregatedMessage::Pong(_) => {
                self.clock.heard(now);
                Ok(None)
            }
            AggregatedMessage::Close(_) => Err(Ending::ClientClosed),
        }
    }

    /// Sends the close frame and reads on until the client has answered it: closing a connection with unread data would
    /// reset it and could take our last messages with it.
    async fn close(self, ending: Ending) {
        let Self { outbox, mut stream, .. } = self;
        outbox.close(ending.close()).await;
        if ending.close().is_some() && ending != Ending::ClientClosed {
            let answered = async {
                while let Some(Ok(m)) = stream.recv().await
                    && !is_close(&m)
                {}
            };
            let _ = tokio::time::timeout(CLOSE_PATIENCE, answered).await;
        }
    }
}

fn is_close(message: &AggregatedMessage) -> bool {
    matches!(message, AggregatedMessage::Close(_))
}

fn refused(error: &InferenceError) -> Ending {
    tracing::warn!(%error, "the conversation cannot be opened");
    if matches!(error, InferenceError::NoModelRoom { .. }) { Ending::Full } else { Ending::ModelError }
}

fn broken(error: &ProtocolError) -> Ending {
    match error {
        ProtocolError::Overflow => Ending::TooBig,
        ProtocolError::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => Ending::BadText,
        ProtocolError::Io(_) => Ending::ClientGone,
        _ => Ending::BadFrame,
    }
}

/// Writes the end of the session and tells whether it is stored; a database that is away for a moment is asked again.
async fn end_row(
    store: &Store,
    id: domain::SessionId,
    ending: Ending,
    stats: &domain::session::SessionStats,
) -> bool {
    for wait in [500, 1_000, 0] {
        match store::sessions::end(store, id, ending.reason(), Some(stats)).await {
            Ok(()) => return true,
            Err(error) => tracing::error!(session = %id, %error, "the end of the session is not stored"),
        }
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    false
}
