//! The life of one socket: prompt, handshake, frames, end.
//!
//! One task reads messages, hands frames to the engine and sends what comes back. It reads the next message only when the
//! engine has taken all audio of the one before. So a client without a clock that sends faster than the model works is
//! slowed down by its own socket; one with a clock loses what it sends too early. Nothing piles up.

mod clock;
pub(crate) mod companions;
pub(crate) mod hub;
mod outbox;
pub mod rows;
mod talk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseCode, ProtocolError};
use bytes::Bytes;
use domain::frame::{SAMPLE_RATE, SAMPLES_PER_FRAME};
use domain::session::{SessionEvent, SessionStats};
use store::Store;
use tokio::sync::broadcast;

use crate::engine::{Conversation, MAX_BACKLOG, OpenRequest, Pace, Place};
use crate::inbox::Inbox;
use crate::prepare::Prepared;
use crate::protocol::{self, ClientMessage, Ending};
use crate::stats::Tally;
use crate::ws::{LiveSession, Shared};
use crate::{InferenceError, context};
use clock::Clock;
use companions::Companions;
use hub::{Hub, Verdict};
use outbox::Outbox;
use rows::Keeper;
use talk::Voice;

/// How often time limits are looked at.
const TICK: Duration = Duration::from_secs(1);
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
    hub: Arc<Hub>,
    /// What happens in the session, for this client.
    events: broadcast::Receiver<SessionEvent>,
    outbox: Outbox,
    stream: AggregatedMessageStream,
    tick: tokio::time::Interval,
    clock: Clock,
    pace: Pace,
    inbox: Inbox,
    /// A frame for which the engine had no room yet.
    held: Option<Vec<f32>>,
    tally: Tally,
    /// Events go only to clients that have sent JSON.
    wants_events: bool,
    /// An interrupted conversation goes on.
    resumed: bool,
    /// Conversation frame of the newest answer.
    frame: u64,
    companions: Companions,
}

/// Runs a session from the upgrade to its last row. `received` is when the request came.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut prepared: Prepared,
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
            leave_row(&store, id, Ending::ModelError, &Tally::default().stats(0, 0), None).await;
            metrics::gauge!("ppx_sessions_live").decrement(1.0);
            return;
        }
    };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let hub = Arc::new(Hub::new(id, Arc::clone(&prepared.tokenizer)));
    live.attach(Arc::clone(&hub));
    let resume_for = shared.sessions.resume_for();
    let mut session = Session {
        clock: Clock::new(received, &shared.settings),
        events: hub.subscribe(),
        companions: Companions::new(&shared, &hub, prepared.puppeteer.take()),
        hub,
        outbox: Outbox::new(socket.sender),
        stream: socket.stream,
        tick,
        pace: prepared.request.pace,
        inbox,
        held: None,
        tally: Tally::default(),
        wants_events: false,
        resumed: false,
        frame: 0,
        shared,
    };
    let ending = session.live(prepared, place).await;
    let stats = session.stats();
    let goes_on = ending.may_resume() && !resume_for.is_zero();
    session.say_goodbye(ending, &stats).await;
    // Before the close frame, so that a client that asks for the session afterwards finds it ended.
    let leave = || leave_row(&store, id, ending, &stats, goes_on.then_some(resume_for));
    let stored = tokio::time::timeout(CLOSE_PATIENCE, leave()).await;
    if !goes_on {
        session.shared.rows.forget(id).await;
    }
    session.close(ending).await;
    let reason = ending.reason();
    tracing::info!(session = %id, reason, frames = stats.frames, p99_ms = stats.frame_ms_p99, "session ended");
    metrics::counter!("ppx_sessions_ended_total", "reason" => reason).increment(1);
    metrics::gauge!("ppx_sessions_live").decrement(1.0);
    if stored != Ok(true) {
        // Changes nothing when the first try arrived after all.
        leave().await;
    }
    drop(live);
}

impl Session {
    /// Opens and talks; the conversation's place is free again when this returns.
    async fn live(&mut self, prepared: Prepared, place: Place) -> Ending {
        let id = prepared.id;
        let mut conversation = match self.open(prepared.request, place).await {
            Ok(conversation) => conversation,
            Err(ending) => return ending,
        };
        let mut voice = match Voice::new(prepared.tokenizer) {
            Ok(voice) => voice,
            Err(ending) => return ending,
        };
        let mut keeper = Keeper::new(id, self.shared.rows.clone());
        let ending = match self.begin(&mut voice, &conversation).await {
            Ok(()) => self.talk(&mut voice, &mut conversation, &mut keeper).await,
            Err(ending) => ending,
        };
        if ending.may_resume() {
            keeper.keep(&conversation).await;
        }
        for event in conversation.finish().await {
            self.hub.tell(context::told(event));
        }
        if ending.is_heard() {
            let _ = self.flush(voice).await;
        }
        ending
    }

    /// Feeds the prompt while listening: early audio is kept, a client that leaves frees its place at once.
    async fn open(&mut self, mut request: OpenRequest, place: Place) -> Result<Conversation, Ending> {
        let shared = Arc::clone(&self.shared);
        // More could not be worked off on the clock.
        let limit = match self.pace {
            Pace::Realtime { .. } => MAX_BACKLOG * SAMPLES_PER_FRAME,
            Pace::Audio => usize::try_from(shared.settings.max_early_audio_seconds)
                .unwrap_or(usize::MAX)
                .saturating_mul(SAMPLE_RATE as usize),
        };
        request.resume = shared.rows.load(self.hub.id).await;
        self.resumed = request.resume.is_some();
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
                    Some(Incoming::Json(text)) => self.hear_json(&text).await?,
                    Some(Incoming::End) => self.inbox.end(),
                    None => {}
                },
            }
        }
    }

    /// One JSON message, answered by an event.
    async fn hear_json(&mut self, message: &str) -> Result<(), Ending> {
        match self.hub.message(message).await {
            Verdict::Flood => Err(Ending::Flood),
            Verdict::Answered | Verdict::Refused(_) => Ok(()),
        }
    }

    /// The facts so far.
    fn stats(&self) -> SessionStats {
        self.tally.stats(self.inbox.bad_pages(), self.inbox.dropped_ms())
    }

    /// Tells everyone who listens how it ends, and this client what it has not heard yet.
    async fn say_goodbye(&mut self, ending: Ending, stats: &SessionStats) {
        self.hub.tell(SessionEvent::Closing { reason: ending.reason().into(), at_frame: self.frame });
        self.hub.tell(SessionEvent::Stats(stats.clone()));
        if !(self.wants_events && ending.is_heard()) {
            return;
        }
        while let Ok(event) = self.events.try_recv() {
            if self.outbox.send(protocol::event(&event)).await.is_err() {
                return;
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
            // The gateway says so of a client that it has lost.
            AggregatedMessage::Close(Some(reason)) if reason.code == CloseCode::Away => {
                Err(Ending::ClientGone)
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
    match error {
        InferenceError::NoModelRoom { .. } | InferenceError::OutOfMemory { .. } => Ending::Full,
        _ => Ending::ModelError,
    }
}

fn broken(error: &ProtocolError) -> Ending {
    match error {
        ProtocolError::Overflow => Ending::TooBig,
        ProtocolError::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => Ending::BadText,
        ProtocolError::Io(_) => Ending::ClientGone,
        _ => Ending::BadFrame,
    }
}

/// Writes that the session is over, or that it may be taken up again for a while, and tells whether it is stored; a
/// database that is away for a moment is asked again.
async fn leave_row(
    store: &Store,
    id: domain::SessionId,
    ending: Ending,
    stats: &SessionStats,
    resume_for: Option<Duration>,
) -> bool {
    for wait in [500, 1_000, 0] {
        let left = match resume_for {
            Some(wait) => store::sessions::detach(store, id, Some(stats), wait).await,
            None => store::sessions::end(store, id, ending.reason(), Some(stats)).await,
        };
        match left {
            Ok(()) => return true,
            Err(error) => tracing::error!(session = %id, %error, "the end of the session is not stored"),
        }
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
    false
}
