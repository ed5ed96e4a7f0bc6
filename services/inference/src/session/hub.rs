//! A live session as others in the process see it: what happens in it, and the way into its inject queue.
//!
//! The client's socket, control sockets, the REST twin and the puppeteer all go through here, so that everyone is told
//! the same and the same limits hold for all.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use domain::SessionId;
use domain::session::{ContextOptions, SessionEvent};
use streams::Tokenizer;
use streams::inject_queue::InjectItem;
use tokio::sync::broadcast;

use crate::context::{self, Admission, FloodGate, Refusal};
use crate::engine::Injector;

/// Events kept for a listener that is behind; it misses older ones.
const BACKLOG: usize = 256;

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was answered by an event, or is a repeat.
    Answered,
    /// It was refused.
    Refused(Refusal),
    /// Too many messages: whoever sends them is cut off.
    Flood,
}

/// One session.
pub(crate) struct Hub {
    pub(crate) id: SessionId,
    tokenizer: Arc<Tokenizer>,
    /// Set once the prompt is in.
    injector: OnceLock<Injector>,
    /// Messages that came before.
    early: Mutex<Vec<InjectItem>>,
    gate: Mutex<FloodGate>,
    events: broadcast::Sender<SessionEvent>,
}

impl Hub {
    pub(crate) fn new(id: SessionId, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            id,
            tokenizer,
            injector: OnceLock::new(),
            early: Mutex::default(),
            gate: Mutex::new(FloodGate::new(Instant::now())),
            events: broadcast::Sender::new(BACKLOG),
        }
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.events.subscribe()
    }

    /// Tells everyone who listens.
    pub(crate) fn tell(&self, event: SessionEvent) {
        // Nobody listening is no fault.
        let _ = self.events.send(event);
    }

    /// The prompt is in: what was sent so far goes to the queue.
    pub(crate) async fn open(&self, injector: Injector) {
        let _ = self.injector.set(injector);
        let early = std::mem::take(&mut *self.early.lock().unwrap_or_else(PoisonError::into_inner));
        for item in early {
            self.offer(item).await;
        }
    }

    /// One JSON message of a client.
    pub(crate) async fn message(&self, message: &str) -> Verdict {
        if let Some(verdict) = self.admit() {
            return verdict;
        }
        match context::read(message, &self.tokenizer) {
            Ok(item) => self.offer(item).await,
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// A text from elsewhere than a socket.
    pub(crate) async fn inject(&self, text: &str, how: ContextOptions) -> Verdict {
        if let Some(verdict) = self.admit() {
            return verdict;
        }
        match context::item(text, how, &self.tokenizer) {
            Ok(item) => self.offer(item).await,
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn admit(&self) -> Option<Verdict> {
        match self.gate.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now()) {
            Admission::Take => None,
            Admission::Refuse => Some(self.refuse(Refusal { id: String::new(), code: "rate_limited" })),
            Admission::Close => Some(Verdict::Flood),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Verdict {
        self.tell(refusal.clone().event());
        Verdict::Refused(refusal)
    }

    async fn offer(&self, item: InjectItem) -> Verdict {
        let Some(injector) = self.injector.get() else {
            return self.hold(item);
        };
        let (id, tokens) = (item.id.clone(), item.tokens.len());
        match injector.offer(item).await {
            Ok(_) => {
                let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
                self.tell(SessionEvent::ContextQueued { id, tokens });
                Verdict::Answered
            }
            Err(rejection) => match context::code(&rejection) {
                Some(code) => self.refuse(Refusal { id, code }),
                None => Verdict::Answered,
            },
        }
    }

    /// Keeps a message that comes while the prompt is fed.
    fn hold(&self, item: InjectItem) -> Verdict {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        if early.len() >= EARLY_MESSAGES {
            drop(early);
            return self.refuse(Refusal { id: item.id, code: "queue_full" });
        }
        early.push(item);
        Verdict::Answered
    }
}

/// Messages kept before the handshake.
const EARLY_MESSAGES: usize = 64;
