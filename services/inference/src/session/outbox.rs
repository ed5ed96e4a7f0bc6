//! What goes out to the client, in order and bounded.
//!
//! At most 32 messages (under three seconds of audio) wait inside the process. A client that is ahead of real time is
//! held back by not being read while these wait; one that takes nothing for [`PATIENCE`] is given up.

use std::time::Duration;

use actix_ws::CloseReason;
use bytes::Bytes;
use tokio::time::timeout;

use crate::protocol::Ending;

/// How long one message may wait for room.
const PATIENCE: Duration = Duration::from_secs(4);

/// The sending half of a socket.
pub(super) struct Outbox {
    socket: actix_ws::Session,
}

impl Outbox {
    pub(super) fn new(socket: actix_ws::Session) -> Self {
        Self { socket }
    }

    /// Sends one binary message.
    pub(super) async fn send(&mut self, message: Bytes) -> Result<(), Ending> {
        settle(timeout(PATIENCE, self.socket.binary(message)).await)
    }

    pub(super) async fn ping(&mut self) -> Result<(), Ending> {
        settle(timeout(PATIENCE, self.socket.ping(b"")).await)
    }

    pub(super) async fn pong(&mut self, payload: &[u8]) -> Result<(), Ending> {
        settle(timeout(PATIENCE, self.socket.pong(payload)).await)
    }

    /// Sends the close frame, if the client may still read it.
    pub(super) async fn close(self, reason: Option<CloseReason>) {
        if reason.is_some() {
            let _ = timeout(PATIENCE, self.socket.close(reason)).await;
        }
    }
}

fn settle(sent: Result<Result<(), actix_ws::Closed>, tokio::time::error::Elapsed>) -> Result<(), Ending> {
    match sent {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Ending::ClientGone),
        Err(_) => Err(Ending::SlowReader),
    }
}
