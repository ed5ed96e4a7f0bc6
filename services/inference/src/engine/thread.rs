//! The engine thread's loop.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use tokio::sync::mpsc;
use tracing::Span;

use super::models::{LoadedModel, Models};
use super::slot::Slot;
use super::{AgentFrame, Answer, Conversation, EngineCommand, OpenRequest, Opened, Place, SlotId};
use crate::InferenceError;

/// A frame that waits for its step.
struct WaitingFrame {
    slot: SlotId,
    pcm: Vec<f32>,
    span: Span,
    reply: Answer<AgentFrame>,
}

struct EngineThread {
    models: Models,
    slots: HashMap<SlotId, (Weak<()>, Slot)>,
    next: SlotId,
    /// For the conversations made here; weak, so that the thread does not keep itself alive.
    commands: mpsc::WeakSender<EngineCommand>,
}

/// Works until every handle is gone.
pub(super) fn run(
    mut inbox: mpsc::Receiver<EngineCommand>,
    commands: mpsc::WeakSender<EngineCommand>,
    max_models: usize,
    threads: usize,
) {
    nn::device::set_threads(threads);
    let _no_grad = tch::no_grad_guard();
    let mut engine =
        EngineThread { models: Models::new(max_models), slots: HashMap::new(), next: 0, commands };
    let mut frames = Vec::new();
    while let Some(first) = inbox.blocking_recv() {
        engine.take(first, &mut frames);
        // Everything that waits is looked at together: frames of several conversations form one round.
        while let Ok(command) = inbox.try_recv() {
            engine.take(command, &mut frames);
        }
        engine.step(&mut frames);
        engine.clear_slots();
    }
    tracing::debug!("engine ended");
}

impl EngineThread {
    fn take(&mut self, command: EngineCommand, frames: &mut Vec<WaitingFrame>) {
        match command {
            EngineCommand::Open { request, place, loaded, span, reply } => {
                let opened = span.in_scope(|| self.open(request, place, loaded));
                // When nobody waits any more the conversation in the answer is dropped, which frees the slot.
                let _ = reply.send(opened);
            }
            EngineCommand::Frame { slot, pcm, span, reply } => {
                frames.push(WaitingFrame { slot, pcm, span, reply });
            }
            EngineCommand::Inject { slot, item, span, reply } => {
                let _entered = span.enter();
                let slot = self.slots.get_mut(&slot).ok_or(InferenceError::NoConversation);
                let _ = reply.send(slot.map(|(_, slot)| slot.inject(item)));
            }
            EngineCommand::Close => {}
        }
    }

    fn open(
        &mut self,
        request: Box<OpenRequest>,
        place: Place,
        loaded: Option<Box<LoadedModel>>,
    ) -> Result<Opened, InferenceError> {
        self.clear_slots();
        let model = match (self.models.get(request.model.id), loaded) {
            (Some(model), _) => model,
            (None, Some(loaded)) => self.models.keep(*loaded)?,
            (None, None) => return Ok(Opened::NotLoaded(request, place)),
        };
        let slot = guarded(|| Slot::open(model, &request, place))?;
        let commands = self.commands.upgrade().ok_or(InferenceError::EngineGone)?;
        let alive = Arc::new(());
        let id = self.next;
        self.next += 1;
        let prompt_frames = slot.prompt_frames();
        self.slots.insert(id, (Arc::downgrade(&alive), slot));
        Ok(Opened::Ready(Conversation { slot: id, prompt_frames, commands, alive: Some(alive) }))
    }

    /// One round: every conversation that has a frame makes one step.
    fn step(&mut self, frames: &mut Vec<WaitingFrame>) {
        for WaitingFrame { slot, pcm, span, reply } in frames.drain(..) {
            let _entered = span.enter();
            let stepped = match self.slots.get_mut(&slot) {
                Some((_, state)) => guarded(|| state.step(&pcm)),
                None => Err(InferenceError::NoConversation),
            };
            if stepped.is_err() {
                // Half-stepped state must not be used again.
                self.slots.remove(&slot);
            }
            let _ = reply.send(stepped);
        }
    }

    fn clear_slots(&mut self) {
        self.slots.retain(|_, (alive, _)| alive.strong_count() > 0);
    }
}

/// A failure inside libtorch is a panic; it ends one conversation, not the engine.
fn guarded<T>(work: impl FnOnce() -> Result<T, InferenceError>) -> Result<T, InferenceError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
        let line = text.lines().next().unwrap_or_default().chars().take(300).collect();
        tracing::error!(error = line, "the model failed");
        Err(InferenceError::Engine(line))
    })
}
