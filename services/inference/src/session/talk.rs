//! The conversation itself: frames in, frames out, injections in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use audio::opus::{OpusWriter, OpusWriterConfig};
use domain::session::SessionEvent;
use streams::tokens::is_padding;
use streams::{TextDecoder, Tokenizer};

use super::rows::Keeper;
use super::{Incoming, Session};
use crate::InferenceError;
use crate::context;
use crate::engine::{AgentFrame, Conversation, Notice, Pace, Pushed};
use crate::protocol::{self, Ending};

/// The agent's side as the client gets it: Ogg-Opus and text.
pub(super) struct Voice {
    writer: OpusWriter,
    text: TextDecoder,
    tokenizer: Arc<Tokenizer>,
}

impl Voice {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, Ending> {
        let writer = OpusWriter::new(OpusWriterConfig::default()).map_err(|e| failed(&e))?;
        Ok(Self { writer, text: TextDecoder::new(), tokenizer })
    }

    /// Client text of one id; none for padding.
    fn piece(&mut self, id: i32) -> String {
        if is_padding(id) { String::new() } else { self.text.push(&self.tokenizer, id) }
    }
}

/// Time between two reports of the facts.
const REPORT_EVERY: Duration = Duration::from_secs(5);

impl Session {
    /// The prompt is in: handshake, audio header, then what the client has sent so far.
    pub(super) async fn begin(
        &mut self,
        voice: &mut Voice,
        conversation: &Conversation,
    ) -> Result<(), Ending> {
        self.outbox.send(protocol::HANDSHAKE.to_vec().into()).await?;
        self.tally.ready(self.clock.opened().elapsed());
        self.clock.busy(Instant::now());
        self.outbox.send(protocol::audio(&voice.writer.header())).await?;
        self.hub.tell(SessionEvent::Created { id: self.hub.id, resumed: self.resumed });
        self.hub.open(conversation.injector()).await;
        self.companions.begin();
        Ok(())
    }

    /// Works until something ends the session.
    pub(super) async fn talk(
        &mut self,
        voice: &mut Voice,
        conversation: &mut Conversation,
        keeper: &mut Keeper,
    ) -> Ending {
        let mut reported = Instant::now();
        loop {
            if let Err(ending) = self.round(voice, conversation).await {
                return ending;
            }
            if keeper.is_due() {
                keeper.keep(conversation).await;
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                self.hub.tell(SessionEvent::Stats(self.stats()));
            }
        }
    }

    /// Hands over all audio there is room for, then waits for one thing to happen.
    async fn round(&mut self, voice: &mut Voice, conversation: &mut Conversation) -> Result<(), Ending> {
        self.feed(conversation)?;
        tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => Err(Ending::Draining),
            _ = self.tick.tick() => self.check_time().await,
            frame = conversation.next() => match frame {
                Some(Ok(frame)) => {
                    if self.pace == Pace::Audio {
                        // Nobody listened to the client meanwhile.
                        self.clock.busy(Instant::now());
                    }
                    self.give(voice, frame).await
                }
                Some(Err(error)) => Err(ended(&error)),
                None if self.inbox.has_ended() => Err(Ending::Finished),
                // The window is full, and the setting is to stop then.
                None => Err(Ending::MaxDuration),
            },
            event = self.events.recv() => match event {
                Ok(event) if self.wants_events => self.outbox.send(protocol::event(&event)).await,
                _ => Ok(()),
            },
            message = self.stream.recv(), if self.held.is_none() => match self.take(message).await? {
                Some(Incoming::Audio(bytes)) => {
                    self.inbox.push(bytes);
                    Ok(())
                }
                Some(Incoming::Json(text)) => self.hear_json(&text).await,
                Some(Incoming::End) => {
                    self.inbox.end();
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    /// Hands frames to the engine until there are no more or it has no room.
    fn feed(&mut self, conversation: &Conversation) -> Result<(), Ending> {
        while let Some(pcm) = self.held.take().or_else(|| self.inbox.next_frame()) {
            match conversation.push(pcm) {
                Pushed::Taken { dropped } => self.inbox.count_dropped(dropped),
                Pushed::Full(pcm) => {
                    self.held = Some(pcm);
                    return Ok(());
                }
                Pushed::Ended => return Err(Ending::ModelError),
            }
        }
        if self.inbox.has_ended() {
            conversation.end_audio();
        }
        Ok(())
    }

    /// Sends one agent frame: sound always, text unless the frame is hidden.
    async fn give(&mut self, voice: &mut Voice, frame: AgentFrame) -> Result<(), Ending> {
        self.frame = frame.index;
        self.tally.frame(&frame);
        let pages = voice.writer.push(&frame.pcm).map_err(|e| failed(&e))?;
        self.outbox.send(protocol::audio(&pages)).await?;
        let piece = frame.text.map(|id| voice.piece(id)).unwrap_or_default();
        self.companions.hear(frame.index, &piece);
        if !piece.is_empty() {
            self.outbox.send(protocol::text(&piece)).await?;
            self.hub.tell(SessionEvent::Transcript { frame: frame.index, text: piece });
        }
        for event in frame.events {
            self.hub.tell(context::told(event));
        }
        for notice in frame.notices {
            self.hub.tell(match notice {
                Notice::WindowEnds { frames } => SessionEvent::Closing {
                    reason: Ending::MaxDuration.reason().into(),
                    at_frame: frame.index + frames as u64,
                },
                Notice::WindowRefreshed { rows } => SessionEvent::Refreshed { rows: rows as u64 },
            });
        }
        Ok(())
    }

    /// The rest of text and sound.
    pub(super) async fn flush(&mut self, mut voice: Voice) -> Result<(), Ending> {
        let rest = voice.text.finish();
        if !rest.is_empty() {
            self.outbox.send(protocol::text(&rest)).await?;
        }
        let pages = voice.writer.finish().map_err(|e| failed(&e))?;
        self.outbox.send(protocol::audio(&pages)).await
    }
}

/// What the end of a conversation means for its session.
fn ended(error: &InferenceError) -> Ending {
    match error {
        InferenceError::WindowEnded => Ending::MaxDuration,
        InferenceError::NotTaken => Ending::SlowReader,
        error => failed(error),
    }
}

fn failed(error: &dyn std::error::Error) -> Ending {
    tracing::error!(%error, "the session cannot go on");
    Ending::ModelError
}
