//! The receiving half: messages into sound, text and events.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::SplitStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use audio::opus::{OpusReader, OpusStats};
use domain::frame::SAMPLES_PER_FRAME;
use domain::session::{SessionEvent, SessionStats};

use super::send::Socket;
use super::{ChatOptions, EventAt, TextPiece, kind};
use crate::error::{ClientError, Result};

/// How far the server is, for the sending half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The handshake came.
    pub ready: bool,
    /// Whole agent frames that came.
    pub frames: u64,
}

/// All that came.
#[derive(Default)]
pub(super) struct Heard {
    pub ready: Option<Instant>,
    pub pcm: Vec<f32>,
    pub texts: Vec<TextPiece>,
    pub events: Vec<EventAt>,
    pub stats: Option<SessionStats>,
    pub opus: OpusStats,
}

impl Heard {
    fn frames(&self) -> u64 {
        (self.pcm.len() / SAMPLES_PER_FRAME) as u64
    }
}

pub(super) struct Receiver {
    stream: SplitStream<Socket>,
    progress: watch::Sender<Received>,
    reader: OpusReader,
    heard: Heard,
}

impl Receiver {
    pub(super) fn new(stream: SplitStream<Socket>, progress: watch::Sender<Received>) -> Result<Self> {
        Ok(Self { stream, progress, reader: OpusReader::new()?, heard: Heard::default() })
    }

    /// Takes messages until the server closes.
    pub(super) async fn run(mut self, options: &ChatOptions) -> Result<Heard> {
        loop {
            let patience =
                if self.heard.ready.is_some() { options.stall_timeout } else { options.ready_timeout };
            let next = tokio::time::timeout(patience, self.stream.next()).await.map_err(|_| {
                ClientError::TimedOut {
                    what: format!("the answer to frame {}", self.heard.frames()),
                    after: patience,
                }
            })?;
            match next {
                Some(Ok(Message::Binary(bytes))) => self.take(&bytes)?,
                Some(Ok(Message::Close(frame))) => {
                    // One more read sends our half of the close.
                    let _ = tokio::time::timeout(Duration::from_secs(1), self.stream.next()).await;
                    return self.end(frame);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ClientError::Socket(error.to_string())),
                None => return Err(ClientError::Socket("ended without a close frame".into())),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((&first, payload)) = bytes.split_first() else { return Ok(()) };
        let frame = self.heard.frames();
        match first {
            kind::HANDSHAKE => {
                self.heard.ready.get_or_insert_with(Instant::now);
            }
            kind::AUDIO => self.heard.pcm.extend(self.reader.push(payload)),
            kind::TEXT => {
                let text = String::from_utf8_lossy(payload).into_owned();
                self.heard.texts.push(TextPiece { frame, text });
            }
            kind::METADATA => match serde_json::from_slice(payload) {
                Ok(SessionEvent::Stats(stats)) => self.heard.stats = Some(stats),
                Ok(event) => self.heard.events.push(EventAt { frame, event }),
                // Metadata of other servers, and events newer than this client.
                Err(_) => {}
            },
            kind::ERROR => {
                return Err(ClientError::Socket(format!(
                    "server error: {}",
                    String::from_utf8_lossy(payload)
                )));
            }
            _ => {}
        }
        let now = Received { ready: self.heard.ready.is_some(), frames: self.heard.frames() };
        self.progress.send_if_modified(|seen| std::mem::replace(seen, now) != now);
        Ok(())
    }

    fn end(mut self, frame: Option<CloseFrame>) -> Result<Heard> {
        match frame {
            Some(frame) if u16::from(frame.code) != 1000 => {
                Err(ClientError::SessionClosed { code: frame.code.into(), reason: frame.reason.to_string() })
            }
            _ => {
                self.heard.opus = self.reader.stats();
                Ok(self.heard)
            }
        }
    }
}
