//! The sending half: frames in order, each context message between the two frames where it belongs.

use std::time::Duration;

use futures::SinkExt;
use futures::stream::SplitSink;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use audio::opus::{OpusWriter, OpusWriterConfig};
use domain::frame::{MS_PER_FRAME, SAMPLES_PER_FRAME};
use domain::session::{ContextOptions, ControlMessage};

use super::receive::Received;
use super::{ChatOptions, InjectAt, Pace, kind};
use crate::error::{ClientError, Result};

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Before context goes out, at most this many sent frames may be unanswered: the server takes context at the frame that it
/// is at, so it must be (almost) at ours. One, since some server may answer a frame only with the next.
const LEAD_AT_CONTEXT: u64 = 1;

/// While the server answers frame `i` it decides the text of frame `i + 1`: context that shall begin with frame `n` has to
/// be there before user frame `n - 1`.
const FRAMES_AHEAD: u64 = 1;

pub(super) struct Sender<'a> {
    pub sink: SplitSink<Socket, Message>,
    pub seen: watch::Receiver<Received>,
    pub options: &'a ChatOptions,
}

impl Sender<'_> {
    /// Plays `user` after the handshake and says that nothing follows.
    pub(super) async fn run(mut self, user: &[f32]) -> Result<()> {
        self.wait("the handshake", self.options.ready_timeout, |r| r.ready).await?;
        let mut writer = OpusWriter::new(OpusWriterConfig::default())?;
        let mut head = writer.header();
        let mut injections = self.options.injections.clone();
        injections.sort_by_key(|i| i.frame);
        let mut injections = injections.into_iter().enumerate().peekable();
        let mut clock = tokio::time::interval(Duration::from_millis(MS_PER_FRAME));
        // After a hiccup the frames follow quickly, so that the clock holds on average.
        clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for (number, frame) in (0u64..).zip(user.chunks(SAMPLES_PER_FRAME)) {
            match self.options.pace {
                Pace::RealTime => {
                    clock.tick().await;
                }
                Pace::Fast { lead } => self.wait_for_frames((number + 1).saturating_sub(lead.max(1))).await?,
            }
            while let Some((index, item)) =
                injections.next_if(|(_, item)| item.frame <= number + FRAMES_AHEAD)
            {
                if matches!(self.options.pace, Pace::Fast { .. }) {
                    self.wait_for_frames(number.saturating_sub(LEAD_AT_CONTEXT)).await?;
                }
                self.send(Message::text(context(index, item)?)).await?;
            }
            let mut message = vec![kind::AUDIO];
            message.append(&mut head);
            message.extend(writer.push(frame)?);
            self.send(Message::binary(message)).await?;
        }
        let mut rest = vec![kind::AUDIO];
        rest.extend(writer.finish()?);
        self.send(Message::binary(rest)).await?;
        self.send(Message::binary(vec![kind::CONTROL, kind::END_TURN])).await
    }

    async fn wait_for_frames(&mut self, frames: u64) -> Result<()> {
        let mut deadline = Instant::now() + self.options.stall_timeout;
        let mut last = self.seen.borrow_and_update().frames;
        while last < frames {
            // Each answered frame renews the patience.
            let changed = tokio::time::timeout_at(deadline, self.seen.changed()).await;
            changed.map_err(|_| self.stalled(last))?.map_err(|_| ended())?;
            let now = self.seen.borrow_and_update().frames;
            if now > last {
                deadline = Instant::now() + self.options.stall_timeout;
                last = now;
            }
        }
        Ok(())
    }

    fn stalled(&self, frame: u64) -> ClientError {
        ClientError::TimedOut {
            what: format!("the answer to frame {frame}"),
            after: self.options.stall_timeout,
        }
    }

    async fn wait(&mut self, what: &str, after: Duration, until: impl Fn(&Received) -> bool) -> Result<()> {
        let waited = tokio::time::timeout(after, self.seen.wait_for(|r| until(r))).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(ClientError::TimedOut { what: what.into(), after }),
        }
    }

    async fn send(&mut self, message: Message) -> Result<()> {
        if self.sink.send(message).await.is_err() {
            // The receiving half sees the same break, and knows the close code.
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

fn ended() -> ClientError {
    ClientError::Socket("closed while audio was being sent".into())
}

fn context(index: usize, item: InjectAt) -> Result<String> {
    let message = ControlMessage::Context {
        text: item.text,
        how: ContextOptions {
            id: Some(format!("ctx-{index}")),
            when: item.when,
            deadline_ms: item.deadline_ms,
            ..ContextOptions::default()
        },
    };
    serde_json::to_string(&message).map_err(|source| ClientError::Shape { path: "context".into(), source })
}
