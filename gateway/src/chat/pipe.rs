//! Frames in both directions, unchanged; each direction waits for its reader, so nothing piles up.

use std::time::Duration;

use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, MessageStream, ProtocolError,
};
use domain::SessionId;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::live::LiveGuard;
use super::upstream::Upstream;
use crate::state::Shared;

/// A client that does not take a frame for this long has stopped listening.
const SLOW_READER: Duration = Duration::from_secs(5);
/// How long inference may take to finish after the client closed.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Close code that says: the session lives, open it again with its ticket.
const RECONNECT: u16 = 4003;
/// Time between pings; the answer counts as a sign of life.
const PING_EVERY: Duration = Duration::from_secs(5);

/// A client's socket joined to one of inference.
pub(super) struct Pipe {
    pub session: SessionId,
    pub client: actix_ws::Session,
    pub messages: MessageStream,
    pub upstream: Upstream,
    pub state: Shared,
    /// The session's place, when this is its own socket and not one beside it.
    pub live: Option<LiveGuard>,
}

/// Why a pipe ended.
#[derive(Debug)]
enum End {
    /// The client closed.
    Client(Option<CloseReason>),
    /// The client went away, broke the protocol, or stopped reading.
    ClientLost(CloseReason),
    /// Inference closed.
    Upstream(Option<CloseReason>),
    /// Inference went away without closing.
    UpstreamLost,
    /// This process goes down.
    Draining,
}

fn reason(code: u16, text: &str) -> CloseReason {
    CloseReason { code: CloseCode::from(code), description: Some(text.to_owned()) }
}

impl Pipe {
    /// Runs until either side ends.
    pub(super) async fn run(self) {
        let Self { session, client, messages, upstream, state, live } = self;
        let limit = state.gateway.max_message_bytes;
        let messages = messages.aggregate_continuations().max_continuation_size(limit);
        let silence = Duration::from_secs(state.gateway.client_timeout_seconds.max(1));
        let (mut to_upstream, mut from_upstream) = upstream.split();
        let end = tokio::select! {
            end = uplink(messages, client.clone(), &mut to_upstream, silence) => end,
            end = downlink(&mut from_upstream, client.clone()) => end,
            end = ping(client.clone()) => end,
            () = state.shutdown.cancelled() => End::Draining,
        };
        tracing::info!(session.id = %session, end = ?kind(&end), "the socket ended");
        match end {
            End::Client(why) => {
                say_goodbye(&mut to_upstream, &mut from_upstream, why.as_ref()).await;
                close(client, why).await;
            }
            End::ClientLost(why) => {
                say_goodbye(&mut to_upstream, &mut from_upstream, Some(&reason(1001, "the client is gone")))
                    .await;
                close(client, Some(why)).await;
            }
            End::Upstream(why) => {
                // Sends our half of the closing handshake; inference waits for it.
                let _ = tokio::time::timeout(LAST_WORDS, to_upstream.close()).await;
                close(client, why).await;
            }
            End::UpstreamLost => {
                let resumable = live.is_some() && leave(&state, session).await;
                let why = if resumable {
                    reason(RECONNECT, "reconnect")
                } else {
                    reason(1011, "inference is gone")
                };
                close(client, Some(why)).await;
            }
            End::Draining => {
                let why = reason(1001, "the server is going down");
                say_goodbye(&mut to_upstream, &mut from_upstream, Some(&why)).await;
                close(client, Some(why)).await;
            }
        }
        drop(live);
    }
}

/// Leaves a session whose inference process is gone to be taken up again, or ends it; tells which.
async fn leave(state: &Shared, session: SessionId) -> bool {
    let wait = state.sessions.resume_for();
    let left = if wait.is_zero() {
        store::sessions::end(&state.store, session, "inference_lost", None).await
    } else {
        store::sessions::detach(&state.store, session, None, wait).await
    };
    if let Err(error) = &left {
        tracing::warn!(%error, session.id = %session, "cannot note that inference is gone");
    }
    left.is_ok() && !wait.is_zero()
}

const fn kind(end: &End) -> &'static str {
    match end {
        End::Client(_) => "client",
        End::ClientLost(_) => "client_lost",
        End::Upstream(_) => "inference",
        End::UpstreamLost => "inference_lost",
        End::Draining => "draining",
    }
}

async fn uplink(
    mut messages: AggregatedMessageStream,
    mut client: actix_ws::Session,
    upstream: &mut SplitSink<Upstream, Message>,
    silence: Duration,
) -> End {
    loop {
        let message = match tokio::time::timeout(silence, messages.recv()).await {
            Err(_) => return End::ClientLost(reason(1001, "no sign of life")),
            Ok(None) => return End::ClientLost(reason(1001, "the connection ended")),
            Ok(Some(Err(ProtocolError::Overflow))) => {
                return End::ClientLost(reason(1009, "the message is too big"));
            }
            Ok(Some(Err(error))) => return End::ClientLost(reason(1002, &error.to_string())),
            Ok(Some(Ok(message))) => message,
        };
        let sent = match message {
            AggregatedMessage::Binary(bytes) => upstream.send(Message::Binary(bytes)).await,
            AggregatedMessage::Text(text) => upstream.send(Message::text(&*text)).await,
            AggregatedMessage::Ping(bytes) => {
                if client.pong(&bytes).await.is_err() {
                    return End::ClientLost(reason(1001, "the connection ended"));
                }
                Ok(())
            }
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Close(why) => return End::Client(why),
        };
        if sent.is_err() {
            // Inference closed; the other direction reads why.
            return std::future::pending().await;
        }
    }
}

async fn downlink(upstream: &mut SplitStream<Upstream>, mut client: actix_ws::Session) -> End {
    loop {
        let sent = match upstream.next().await {
            Some(Ok(Message::Binary(bytes))) => tokio::time::timeout(SLOW_READER, client.binary(bytes)).await,
            Some(Ok(Message::Text(text))) => {
                tokio::time::timeout(SLOW_READER, client.text(text.as_str().to_owned())).await
            }
            Some(Ok(Message::Close(frame))) => return End::Upstream(frame.map(|f| close_reason(&f))),
            Some(Ok(_)) => continue,
            Some(Err(_)) | None => return End::UpstreamLost,
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::ClientLost(reason(1001, "the connection ended")),
            Err(_) => return End::ClientLost(reason(1008, "the client does not read")),
        }
    }
}

async fn ping(mut client: actix_ws::Session) -> End {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        if client.ping(b"ppx").await.is_err() {
            return End::ClientLost(reason(1001, "the connection ended"));
        }
    }
}

fn close_reason(frame: &CloseFrame) -> CloseReason {
    reason(u16::from(frame.code), frame.reason.as_str())
}

/// Tells inference that the conversation is over and waits for its close, so that its statistics are written.
async fn say_goodbye(
    to: &mut SplitSink<Upstream, Message>,
    from: &mut SplitStream<Upstream>,
    why: Option<&CloseReason>,
) {
    let frame = why.map(|why| CloseFrame {
        code: u16::from(why.code).into(),
        reason: why.description.clone().unwrap_or_default().into(),
    });
    let farewell = async {
        if to.send(Message::Close(frame)).await.is_err() {
            return;
        }
        while let Some(Ok(message)) = from.next().await {
            if message.is_close() {
                return;
            }
        }
    };
    if tokio::time::timeout(LAST_WORDS, farewell).await.is_err() {
        tracing::debug!("inference did not close in time");
    }
}

async fn close(client: actix_ws::Session, why: Option<CloseReason>) {
    // A client that is gone cannot be told; nothing follows either way.
    // One that does not read has a full queue: waiting for a place in it would never end.
    let _ = tokio::time::timeout(SLOW_READER, client.close(why)).await;
}
