//! A live conversation as the rest of the process holds it: frames in, frames out, injections from anywhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use streams::inject_queue::{InjectEvent, InjectItem, Rejection};
use tokio::sync::mpsc;
use tracing::Span;

use super::{AgentFrame, EngineCommand, Mailbox, Pace, Rows, SlotId, ask};
use crate::InferenceError;

/// User frames that wait in a conversation with a clock; the oldest goes when one more comes.
pub const MAX_BACKLOG: usize = 4;
/// Frames under way in a conversation without a clock: pushed and not yet answered to the caller.
pub const MAX_UNDER_WAY: usize = 64;
/// Agent frames of a conversation with a clock that wait for whoever takes them: two seconds.
pub(super) const MAX_UNTAKEN: usize = 25;

/// What became of a frame.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum Pushed {
    /// It waits for its step; so many older ones were dropped for it (only with a clock).
    Taken {
        /// Frames dropped.
        dropped: usize,
    },
    /// [`MAX_UNDER_WAY`] frames wait for their answers: take some first. The frame comes back (only without a clock).
    Full(Vec<f32>),
    /// The conversation is over, or its audio was said to be complete.
    Ended,
}

/// What the engine sends to a conversation.
pub(super) enum Output {
    Frame(Box<AgentFrame>),
    Failed(InferenceError),
    /// All audio is answered; what the end did to the inject queue.
    Ended(Vec<InjectEvent>),
}

/// User audio on its way to the engine.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    frames: VecDeque<Vec<f32>>,
    /// Without a clock: pushed and not yet given to the caller as an answer. With one: answers not yet taken.
    under_way: usize,
    dropped: u64,
    /// No more audio will come.
    complete: bool,
    /// Nobody holds the conversation any more.
    closed: bool,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest frame that waits.
    pub(super) fn pop(&self) -> Option<Vec<f32>> {
        self.lock().frames.pop_front()
    }

    /// Frames that wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().frames.len()
    }

    /// Drops the oldest frame and counts it.
    pub(super) fn drop_oldest(&self) {
        let mut state = self.lock();
        if state.frames.pop_front().is_some() {
            state.dropped += 1;
        }
    }

    /// Counts an answer; gives the answers that nobody has taken yet.
    pub(super) fn given(&self, pace: Pace) -> usize {
        let mut state = self.lock();
        state.under_way += usize::from(pace != Pace::Audio);
        state.under_way
    }

    /// Whether all audio was taken and none will come.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.complete && state.frames.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

/// One live conversation. Dropping it frees its slot.
pub struct Conversation {
    pub(super) slot: SlotId,
    pub(super) prompt_frames: usize,
    pub(super) pace: Pace,
    pub(super) mailbox: Mailbox,
    pub(super) line: Arc<Line>,
    pub(super) output: mpsc::UnboundedReceiver<Output>,
    pub(super) leftover: Vec<InjectEvent>,
}

impl Conversation {
    /// Frames of the prompt that was fed.
    #[must_use]
    pub const fn prompt_frames(&self) -> usize {
        self.prompt_frames
    }

    /// Gives one frame of user audio (1,920 samples).
    pub fn push(&self, pcm: Vec<f32>) -> Pushed {
        let mut state = self.line.lock();
        if state.complete {
            return Pushed::Ended;
        }
        let mut dropped = 0;
        match self.pace {
            Pace::Audio if state.under_way >= MAX_UNDER_WAY => return Pushed::Full(pcm),
            Pace::Audio => state.under_way += 1,
            Pace::Realtime { .. } => {
                while state.frames.len() >= MAX_BACKLOG {
                    state.frames.pop_front();
                    dropped += 1;
                }
            }
        }
        state.dropped += dropped as u64;
        state.frames.push_back(pcm);
        drop(state);
        if self.pace == Pace::Audio {
            self.mailbox.wake();
        }
        Pushed::Taken { dropped }
    }

    /// No more user audio will come. [`Conversation::next`] gives what is still to be answered and then `None`.
    pub fn end_audio(&self) {
        self.line.lock().complete = true;
        self.mailbox.wake();
    }

    /// The next agent frame; `None` after [`Conversation::end_audio`] once all audio is answered, or after an error. Safe
    /// to drop while it waits.
    pub async fn next(&mut self) -> Option<Result<AgentFrame, InferenceError>> {
        match self.output.recv().await? {
            Output::Frame(frame) => {
                let mut state = self.line.lock();
                state.under_way = state.under_way.saturating_sub(1);
                Some(Ok(*frame))
            }
            Output::Failed(error) => Some(Err(error)),
            Output::Ended(events) => {
                self.leftover.extend(events);
                None
            }
        }
    }

    /// A handle through which injections are offered, from any task.
    #[must_use]
    pub fn injector(&self) -> Injector {
        Injector { slot: self.slot, mailbox: self.mailbox.clone() }
    }

    /// User frames dropped so far because too many waited.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.line.lock().dropped
    }

    /// The rows of the whole conversation from row `since` on, for [`super::OpenRequest::resume`].
    ///
    /// # Errors
    /// When the conversation or the engine is gone.
    pub async fn rows(&self, since: usize) -> Result<Rows, InferenceError> {
        let slot = self.slot;
        ask(&self.mailbox, |reply| EngineCommand::Rows { slot, since, reply }).await
    }

    /// Ends the conversation and tells what that did to injections that waited or ran.
    pub async fn finish(mut self) -> Vec<InjectEvent> {
        let slot = self.slot;
        let events = ask(&self.mailbox, |reply| EngineCommand::Finish { slot, reply }).await;
        self.leftover.extend(events.unwrap_or_default());
        while let Ok(output) = self.output.try_recv() {
            match output {
                Output::Frame(frame) => self.leftover.extend(frame.events),
                Output::Ended(events) => self.leftover.extend(events),
                Output::Failed(_) => {}
            }
        }
        std::mem::take(&mut self.leftover)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.line.lock().closed = true;
        self.mailbox.wake();
    }
}

/// Offers injections to one conversation; cheap to clone.
#[derive(Clone)]
pub struct Injector {
    slot: SlotId,
    mailbox: Mailbox,
}

impl Injector {
    /// Queues an injection; the value is the number of items that go before it.
    ///
    /// # Errors
    /// What the queue refuses; [`Rejection::Ended`] also when the conversation is gone.
    pub async fn offer(&self, item: InjectItem) -> Result<usize, Rejection> {
        let (slot, span) = (self.slot, Span::current());
        let asked = ask(&self.mailbox, |reply| EngineCommand::Inject { slot, item, span, reply }).await;
        asked.unwrap_or(Err(Rejection::Ended))
    }
}
