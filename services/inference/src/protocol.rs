//! The client protocol: kind bytes, close codes (personaplex.md 4.1).

use actix_ws::{CloseCode, CloseReason};
use bytes::{BufMut, Bytes, BytesMut};
use domain::session::SessionEvent;

const AUDIO: u8 = 0x01;
const TEXT: u8 = 0x02;
const CONTROL: u8 = 0x03;
const EVENT: u8 = 0x04;
/// Control byte: the client has sent all its audio.
const END_TURN: u8 = 1;

/// Sent once the prompt is in: kind 0x00, protocol 0, model 0. Clients ignore the payload.
pub const HANDSHAKE: [u8; 9] = [0; 9];

/// A binary message of the client.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Ogg-Opus bytes, cut anywhere.
    Audio(Bytes),
    /// No more audio will come.
    End,
    /// A kind or control that means nothing here.
    Unknown,
}

/// Reads the kind byte.
#[must_use]
pub fn parse(message: &Bytes) -> ClientMessage {
    match message.first() {
        Some(&AUDIO) => ClientMessage::Audio(message.slice(1..)),
        Some(&CONTROL) if message.get(1) == Some(&END_TURN) => ClientMessage::End,
        _ => ClientMessage::Unknown,
    }
}

fn framed(kind: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + payload.len());
    out.put_u8(kind);
    out.put_slice(payload);
    out.freeze()
}

/// Agent audio: Ogg pages.
#[must_use]
pub fn audio(pages: &[u8]) -> Bytes {
    framed(AUDIO, pages)
}

/// Agent text: one piece.
#[must_use]
pub fn text(piece: &str) -> Bytes {
    framed(TEXT, piece.as_bytes())
}

/// Server event; only for clients that have sent JSON themselves.
#[must_use]
pub fn event(event: &SessionEvent) -> Bytes {
    framed(EVENT, &serde_json::to_vec(event).expect("an event is plain data"))
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client said that its audio is complete, and all of it was answered.
    Finished,
    /// The client closed.
    ClientClosed,
    /// The connection broke, or no sign of life came.
    ClientGone,
    /// The client does not take what we send.
    SlowReader,
    /// No frame for too long.
    Idle,
    /// Longer than a session may be.
    MaxDuration,
    /// Model or engine failed.
    ModelError,
    /// The process is going down.
    Draining,
    /// Too many messages.
    Flood,
    /// A message is too large.
    TooBig,
    /// A text message is not UTF-8.
    BadText,
    /// Not the websocket protocol.
    BadFrame,
    /// No room for the model.
    Full,
}

impl Ending {
    /// Kept in the session's row.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ClientClosed => "client_closed",
            Self::ClientGone => "client_gone",
            Self::SlowReader => "slow_reader",
            Self::Idle => "idle",
            Self::MaxDuration => "max_duration",
            Self::ModelError => "model_error",
            Self::Draining => "draining",
            Self::Flood => "flood",
            Self::TooBig => "too_big",
            Self::BadText => "bad_text",
            Self::BadFrame => "bad_frame",
            Self::Full => "full",
        }
    }

    /// The close frame to send; none when nobody would read it.
    #[must_use]
    pub fn close(self) -> Option<CloseReason> {
        let code = match self {
            Self::SlowReader => return None,
            Self::Finished | Self::ClientClosed => CloseCode::Normal,
            Self::Draining | Self::ClientGone => CloseCode::Away,
            Self::BadFrame => CloseCode::Protocol,
            Self::BadText => CloseCode::Invalid,
            Self::Flood => CloseCode::Policy,
            Self::TooBig => CloseCode::Size,
            Self::Full => CloseCode::Again,
            Self::Idle => CloseCode::Other(4000),
            Self::MaxDuration => CloseCode::Other(4001),
            Self::ModelError => CloseCode::Other(4002),
        };
        Some(CloseReason { code, description: Some(self.reason().into()) })
    }

    /// Whether the conversation may be taken up again with the session's ticket.
    #[must_use]
    pub const fn may_resume(self) -> bool {
        matches!(self, Self::ClientGone | Self::SlowReader | Self::Draining)
    }

    /// Whether the rest of the audio and the statistics still reach somebody.
    #[must_use]
    pub const fn is_heard(self) -> bool {
        matches!(self, Self::Finished | Self::Draining | Self::Idle | Self::MaxDuration | Self::ModelError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_and_unknown_ones_are_no_error() {
        let parse = |bytes: &'static [u8]| parse(&Bytes::from_static(bytes));
        assert_eq!(parse(&[1, 7, 8]), ClientMessage::Audio(Bytes::from_static(&[7, 8])));
        assert_eq!(parse(&[1]), ClientMessage::Audio(Bytes::new()));
        assert_eq!(parse(&[3, 1]), ClientMessage::End);
        for other in [&[][..], &[0], &[3], &[3, 0], &[3, 2], &[9, 1, 2]] {
            assert_eq!(parse(other), ClientMessage::Unknown, "{other:?}");
        }
    }

    #[test]
    fn close_codes_are_those_of_the_protocol() {
        let code = |ending: Ending| ending.close().map(|c| u16::from(c.code));
        assert_eq!(code(Ending::Finished), Some(1000));
        assert_eq!(code(Ending::Draining), Some(1001));
        assert_eq!(code(Ending::Idle), Some(4000));
        assert_eq!(code(Ending::MaxDuration), Some(4001));
        assert_eq!(code(Ending::ModelError), Some(4002));
        assert_eq!(code(Ending::ClientGone), Some(1001));
        assert_eq!(code(Ending::SlowReader), None);
    }
}
