//! The conversation itself: frames in, frames out, injections in between.

use std::sync::Arc;
use std::time::Instant;

use audio::opus::{OpusWriter, OpusWriterConfig};
use domain::session::SessionEvent;
use streams::tokens::is_padding;
use streams::{TextDecoder, Tokenizer};

use super::{Incoming, Session};
use crate::InferenceError;
use crate::context::{self, Admission, Refusal};
use crate::engine::{AgentFrame, Conversation, Pushed};
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

impl Session {
    /// The prompt is in: handshake, audio header, then what the client has sent so far.
    pub(super) async fn begin(
        &mut self,
        voice: &mut Voice,
        conversation: &mut Conversation,
    ) -> Result<(), Ending> {
        self.outbox.send(protocol::HANDSHAKE.to_vec().into()).await?;
        self.tally.ready(self.clock.opened().elapsed());
        self.clock.busy(Instant::now());
        self.outbox.send(protocol::audio(&voice.writer.header())).await?;
        for message in std::mem::take(&mut self.early) {
            self.inject(voice, conversation, &message).await?;
        }
        Ok(())
    }

    /// Works until something ends the session.
    pub(super) async fn talk(&mut self, voice: &mut Voice, conversation: &mut Conversation) -> Ending {
        loop {
            if let Err(ending) = self.round(voice, conversation).await {
                return ending;
            }
        }
    }

    /// Answers all audio there is, then waits for one message.
    async fn round(&mut self, voice: &mut Voice, conversation: &mut Conversation) -> Result<(), Ending> {
        let mut worked = false;
        while let Some(pcm) = self.inbox.next_frame() {
            if self.shared.shutdown.is_cancelled() {
                return Err(Ending::Draining);
            }
            self.check_time().await?;
            let frame = answer(conversation, pcm).await?;
            self.clock.busy(Instant::now());
            self.give(voice, frame).await?;
            worked = true;
        }
        if worked {
            self.clock.busy(Instant::now());
        }
        if self.inbox.has_ended() {
            return Err(Ending::Finished);
        }
        tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => Err(Ending::Draining),
            _ = self.tick.tick() => self.check_time().await,
            message = self.stream.recv() => match self.take(message).await? {
                Some(Incoming::Audio(bytes)) => {
                    self.inbox.push(bytes);
                    Ok(())
                }
                Some(Incoming::Json(text)) => self.inject(voice, conversation, &text).await,
                Some(Incoming::End) => {
                    self.inbox.end();
                    Ok(())
                }
                None => Ok(()),
            },
        }
    }

    /// Sends one agent frame: sound always, text unless the frame is hidden, events to those who want them.
    async fn give(&mut self, voice: &mut Voice, frame: AgentFrame) -> Result<(), Ending> {
        self.tally.frame(frame.took, frame.hidden);
        let pages = voice.writer.push(&frame.pcm).map_err(|e| failed(&e))?;
        self.outbox.send(protocol::audio(&pages)).await?;
        let piece = frame.text.map(|id| voice.piece(id)).unwrap_or_default();
        if !piece.is_empty() {
            self.outbox.send(protocol::text(&piece)).await?;
        }
        for event in frame.events {
            self.tell(&context::told(event)).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, event: &SessionEvent) -> Result<(), Ending> {
        if self.wants_events { self.outbox.send(protocol::event(event)).await } else { Ok(()) }
    }

    /// One JSON message: always answered, except for a repeated id.
    async fn inject(
        &mut self,
        voice: &Voice,
        conversation: &mut Conversation,
        message: &str,
    ) -> Result<(), Ending> {
        match self.gate.admit(Instant::now()) {
            Admission::Take => {}
            Admission::Refuse => {
                let refusal = Refusal { id: String::new(), code: "rate_limited" };
                return self.tell(&refusal.event()).await;
            }
            Admission::Close => return Err(Ending::Flood),
        }
        let item = match context::read(message, &voice.tokenizer) {
            Ok(item) => item,
            Err(refusal) => return self.tell(&refusal.event()).await,
        };
        let (id, tokens) = (item.id.clone(), item.tokens.len());
        let offered = conversation.injector().offer(item).await;
        match context::answer(id, tokens, &offered) {
            Some(event) => self.tell(&event).await,
            None => Ok(()),
        }
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

/// The agent's frame for one frame of the user.
async fn answer(conversation: &mut Conversation, pcm: Vec<f32>) -> Result<AgentFrame, Ending> {
    if let Pushed::Full(_) | Pushed::Ended = conversation.push(pcm) {
        return Err(Ending::ModelError);
    }
    let frame = conversation.next().await.unwrap_or(Err(InferenceError::NoConversation));
    frame.map_err(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Ending {
    tracing::error!(%error, "the session cannot go on");
    Ending::ModelError
}
