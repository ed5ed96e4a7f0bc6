//! The live side of [`crate::splice`]: decides frame by frame whether a context token is given.
//!
//! Pure state, counted in conversation frames. For every frame the caller asks [`InjectQueue::decide`] before
//! the frame is sampled and reports the text id with [`InjectQueue::observe`] after. A forced frame is exactly
//! [`crate::splice::context_frame`]: the token, agent silence, the user's own codes.

use std::collections::{HashSet, VecDeque};

pub use crate::inject_item::{
    Decision, InjectEvent, InjectItem, InjectKind, QueueLimits, QueueState, Rejection, When,
};
use crate::tokens::{EPAD, is_padding};

struct Waiting {
    item: InjectItem,
    since: u64,
}

struct Running {
    item: InjectItem,
    given: usize,
    start: u64,
}

/// The queue of one session.
pub struct InjectQueue {
    limits: QueueLimits,
    waiting: VecDeque<Waiting>,
    running: Option<Running>,
    cooldown: u32,
    in_prompt: bool,
    ended: bool,
    frame: u64,
    /// Frames of padding in a row.
    quiet: u32,
    /// Emitted frames of the agent in a row that sounded like silence; enough of them until a first one was heard.
    silent: u32,
    /// Whether the user spoke in the newest frame.
    user_speaks: bool,
    last_text: Option<i32>,
    hidden: Vec<(u64, u64)>,
    seen: HashSet<String>,
    events: Vec<InjectEvent>,
}

impl InjectQueue {
    /// An empty queue of a session whose prompt is still being fed.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            running: None,
            cooldown: 0,
            in_prompt: true,
            ended: false,
            frame: 0,
            // The prompt ends in silence, so the conversation starts in a pause.
            quiet: limits.pause_frames,
            silent: limits.quiet_frames,
            user_speaks: false,
            last_text: None,
            hidden: Vec::new(),
            seen: HashSet::new(),
            events: Vec::new(),
        }
    }

    /// The prompt is done; the next frame is conversation frame 0.
    pub fn begin_conversation(&mut self) {
        self.in_prompt = false;
    }

    /// Queues an item; the value is the number of items that go before it.
    ///
    /// # Errors
    /// See [`Rejection`]; nothing is dropped silently to make room.
    pub fn offer(&mut self, item: InjectItem) -> Result<usize, Rejection> {
        let limit = self.limits.max_item_tokens;
        let (items, tokens) = (self.waiting.len(), self.waiting_tokens());
        if self.ended {
            return Err(Rejection::Ended);
        } else if item.tokens.is_empty() {
            return Err(Rejection::Empty(item.id));
        } else if item.tokens.len() > limit {
            return Err(Rejection::TooLong { tokens: item.tokens.len(), limit });
        } else if self.seen.contains(&item.id) {
            return Err(Rejection::DuplicateId(item.id));
        } else if items >= self.limits.max_items
            || tokens + item.tokens.len() > self.limits.max_waiting_tokens
        {
            return Err(Rejection::QueueFull { items, tokens });
        }
        self.seen.insert(item.id.clone());
        if let Some(old) = &item.supersedes {
            self.drop_waiting(|w| w.item.id == *old, |id| InjectEvent::Dropped { id });
        }
        if item.kind == InjectKind::Context {
            self.drop_waiting(|w| w.item.kind == InjectKind::Nudge, |id| InjectEvent::Dropped { id });
        }
        let position = self.waiting.iter().take_while(|w| w.item.kind <= item.kind).count();
        self.waiting.insert(position, Waiting { item, since: self.frame });
        Ok(position + usize::from(self.running.is_some()))
    }

    /// Decides the frame [`Self::frame`]; call once a frame, then [`Self::observe`].
    pub fn decide(&mut self) -> Decision {
        if self.in_prompt || self.ended {
            return Decision::Free;
        }
        let (now, default_ttl) = (self.frame, self.limits.ttl_frames);
        self.drop_waiting(
            |w| now - w.since >= u64::from(w.item.ttl_frames.unwrap_or(default_ttl)),
            |id| InjectEvent::Expired { id },
        );
        if self.running.is_none() && self.cooldown == 0 {
            self.start_next();
        }
        match self.running.take() {
            Some(running) => self.give(running),
            None => Decision::Free,
        }
    }

    /// Reports the text id of the frame just decided and moves to the next frame.
    pub fn observe(&mut self, text: i32) {
        if self.in_prompt || self.ended {
            return;
        }
        let hidden = self.is_hidden(self.frame);
        if !hidden {
            self.cooldown = self.cooldown.saturating_sub(1);
        }
        // To everything that listens, a hidden frame is padding.
        self.quiet = if hidden || is_padding(text) { self.quiet.saturating_add(1) } else { 0 };
        self.last_text = Some(text).filter(|_| !hidden);
        self.frame += 1;
    }

    /// Reports the sound of the frame just emitted, both sides as root mean square in dBFS. An agent may be heard after its
    /// last word: until it is silent there is no pause.
    pub fn hear(&mut self, agent_dbfs: f32, user_dbfs: f32) {
        let silent = agent_dbfs < self.limits.quiet_dbfs;
        self.silent = if silent { self.silent.saturating_add(1) } else { 0 };
        self.user_speaks = user_dbfs >= self.limits.speech_dbfs;
    }

    /// Whether conversation frame `frame` carries context and must not reach the client's text.
    #[must_use]
    pub fn is_hidden(&self, frame: u64) -> bool {
        self.hidden.iter().rev().any(|&(start, end)| (start..end).contains(&frame))
    }

    /// Takes what happened since the last call.
    pub fn drain_events(&mut self) -> Vec<InjectEvent> {
        std::mem::take(&mut self.events)
    }

    /// Ends the session: what runs or waits is aborted.
    pub fn end_session(&mut self) {
        self.ended = true;
        if let Some(running) = self.running.take() {
            self.events.push(InjectEvent::Aborted { id: running.item.id, consumed: running.given });
        }
        self.drop_waiting(|_| true, |id| InjectEvent::Aborted { id, consumed: 0 });
    }

    /// Conversation frame that is decided next.
    #[must_use]
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Items that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Tokens that wait.
    #[must_use]
    pub fn waiting_tokens(&self) -> usize {
        self.waiting.iter().map(|w| w.item.tokens.len()).sum()
    }

    /// Where the queue stands.
    #[must_use]
    pub fn state(&self) -> QueueState {
        match (self.ended, self.in_prompt, &self.running, self.cooldown) {
            (true, ..) => QueueState::Ended,
            (_, true, ..) => QueueState::Prompt,
            (_, _, Some(_), _) => QueueState::Injecting,
            (_, _, None, 0) => QueueState::Idle,
            _ => QueueState::Cooldown,
        }
    }

    fn start_next(&mut self) {
        if !self.waiting.front().is_some_and(|w| self.may_start(w)) {
            return;
        }
        if let Some(Waiting { item, .. }) = self.waiting.pop_front() {
            let start = self.frame;
            self.events.push(InjectEvent::Started { id: item.id.clone(), frame: start });
            self.hidden.push((start, start));
            self.running = Some(Running { item, given: 0, start });
        }
    }

    fn may_start(&self, waiting: &Waiting) -> bool {
        if waiting.item.when == When::Immediate {
            return true;
        }
        // An EPAD announces a word: training never shows one right before a context.
        let announced = self.last_text == Some(EPAD);
        let pause = self.quiet >= self.limits.pause_frames && self.silent >= self.limits.quiet_frames;
        if pause && !announced && (waiting.item.when == When::Pause || self.user_speaks) {
            return true;
        }
        let waited = self.frame - waiting.since;
        let deadline = u64::from(waiting.item.deadline_frames.unwrap_or(self.limits.deadline_frames));
        let boundary = self.quiet > 0 && !announced;
        waited >= deadline + u64::from(self.limits.boundary_frames) || (waited >= deadline && boundary)
    }

    fn give(&mut self, mut running: Running) -> Decision {
        let token = running.item.tokens[running.given];
        running.given += 1;
        if let Some(span) = self.hidden.last_mut() {
            span.1 = self.frame + 1;
        }
        if running.given == running.item.tokens.len() {
            self.cooldown = self.limits.cooldown_frames;
            self.events.push(InjectEvent::Completed {
                id: running.item.id,
                frame_start: running.start,
                frame_end: self.frame + 1,
            });
        } else {
            self.running = Some(running);
        }
        Decision::Forced { token }
    }

    fn drop_waiting(
        &mut self,
        mut gone: impl FnMut(&Waiting) -> bool,
        event: impl Fn(String) -> InjectEvent,
    ) {
        let events = &mut self.events;
        self.waiting.retain(|w| {
            let drop = gone(w);
            if drop {
                events.push(event(w.item.id.clone()));
            }
            !drop
        });
    }
}
