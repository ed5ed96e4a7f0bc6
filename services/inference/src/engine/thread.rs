//! The engine thread's loop: commands, ticks, and what fits between them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use tch::Device;
use tokio::sync::mpsc;
use tracing::Span;

use super::conversation::Line;
use super::group::{Group, GroupOptions};
use super::memory::Sizes;
use super::models::Models;
use super::pace::{Due, Grid, TICK};
use super::slot::{Turn, Wires};
use super::{
    Answer, Conversation, EngineCommand, LoadFigures, Mailbox, OpenRequest, Opened, Pace, Place, SlotId,
};
use crate::{InferenceError, InferenceSettings};

/// Time before a tick that other work leaves free.
const MARGIN: Duration = Duration::from_millis(5);
const SILENCE: [f32; domain::frame::SAMPLES_PER_FRAME] = [0.0; domain::frame::SAMPLES_PER_FRAME];

/// Choices for the life of the thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    threads: usize,
    max_models: usize,
    device: Device,
    memory: Option<u64>,
    late_frames: u32,
    group: GroupOptions,
}

impl Options {
    pub(super) fn new(settings: &InferenceSettings, device: Device, threads: usize) -> Self {
        Self {
            threads,
            max_models: settings.max_models.max(1),
            device,
            memory: settings.memory_limit(),
            late_frames: settings.late_frames,
            group: GroupOptions {
                slots: settings.max_sessions.max(1),
                rows: settings.rows(),
                policy: settings.window_policy,
                kept_rows: settings.refresh_rows,
                prefix_bytes: settings.prefix_cache_mb << 20,
            },
        }
    }
}

impl Options {
    /// What decides how much memory a model takes.
    pub(super) const fn sizes(&self) -> Sizes {
        Sizes { slots: self.group.slots, rows: self.group.rows }
    }
}

/// An open command that waits for its turn.
struct Opening {
    request: Box<OpenRequest>,
    place: Place,
    mailbox: Mailbox,
    span: Span,
    reply: Answer<Opened>,
}

struct EngineThread<'a> {
    options: &'a Options,
    models: Models,
    openings: VecDeque<Opening>,
    grid: Grid,
    figures: LoadFigures,
    next: SlotId,
    /// How long a piece of work between ticks has taken of late.
    usual: Duration,
}

/// Works until every handle is gone.
pub(super) fn run(
    inbox: &Receiver<EngineCommand>,
    options: &Options,
    waking: &AtomicBool,
    running: &AtomicBool,
) {
    struct Stopped<'a>(&'a AtomicBool);
    impl Drop for Stopped<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Release);
        }
    }
    let _stopped = Stopped(running);
    nn::device::set_threads(options.threads);
    let _no_grad = tch::no_grad_guard();
    let mut engine = EngineThread {
        options,
        models: Models::new(options.max_models, options.device, options.memory),
        openings: VecDeque::new(),
        grid: Grid::default(),
        figures: LoadFigures::default(),
        next: 0,
        usual: Duration::ZERO,
    };
    while engine.listen(inbox, waking) {
        engine.work();
    }
    tracing::debug!("engine ended");
}

impl EngineThread<'_> {
    /// Takes commands until there is work; `false` when nobody can send any more.
    fn listen(&mut self, inbox: &Receiver<EngineCommand>, waking: &AtomicBool) -> bool {
        let mut wait = self.patience(Instant::now());
        loop {
            let received = match wait {
                Some(Duration::ZERO) => inbox.try_recv().map_err(|e| e == TryRecvError::Disconnected),
                Some(wait) => inbox.recv_timeout(wait).map_err(|e| e == RecvTimeoutError::Disconnected),
                None => inbox.recv().map_err(|_| true),
            };
            match received {
                Ok(command) => self.take(command, waking),
                Err(gone) => return !gone,
            }
            wait = Some(Duration::ZERO);
        }
    }

    /// How long there is nothing to do but to listen; none for as long as nobody asks for anything.
    fn patience(&mut self, now: Instant) -> Option<Duration> {
        let tick = self.next_tick(now).map(|due| due.saturating_duration_since(now));
        if !self.openings.is_empty() || self.has_audio() || self.models.groups().any(|g| g.is_refreshing()) {
            return Some(match tick {
                Some(left) if !self.fits(left) => left,
                _ => Duration::ZERO,
            });
        }
        tick
    }

    /// Whether one more piece of work is over before the next tick.
    /// What takes longer than the time between two ticks must begin early in it.
    fn fits(&self, left: Duration) -> bool {
        left > (self.usual + MARGIN).min(TICK / 2)
    }

    fn next_tick(&mut self, now: Instant) -> Option<Instant> {
        let live = self.models.groups().any(|g| g.slots().any(|(_, s)| s.pace != Pace::Audio));
        if live {
            return Some(self.grid.due(now));
        }
        self.grid.stop();
        None
    }

    fn has_audio(&mut self) -> bool {
        self.models.groups().any(|g| g.slots().any(|(_, s)| s.pace == Pace::Audio && s.line.waiting() > 0))
    }

    fn take(&mut self, command: EngineCommand, waking: &AtomicBool) {
        match command {
            EngineCommand::Open { request, place, mailbox, span, reply } => {
                self.openings.push_back(Opening { request, place, mailbox, span, reply });
            }
            EngineCommand::Inject { slot, item, span, reply } => {
                let _entered = span.enter();
                let found = self.models.groups().find_map(|group| group.inject(slot, item.clone()));
                let _ = reply.send(found.ok_or(InferenceError::NoConversation));
            }
            EngineCommand::Rows { slot, since, reply } => {
                let mut groups = self.models.groups();
                let rows = groups.find_map(|g| g.find(slot).map(|(at, _)| at).map(|at| g.rows(at, since)));
                let _ = reply.send(rows.unwrap_or(Err(InferenceError::NoConversation)));
            }
            EngineCommand::Finish { slot, reply } => {
                let mut groups = self.models.groups();
                let ended = groups.find_map(|g| {
                    let at = g.find(slot)?.0;
                    g.remove(at).map(|mut slot| slot.finish())
                });
                let _ = reply.send(ended.ok_or(InferenceError::NoConversation));
            }
            EngineCommand::MakeRoom { model, bytes, reply } => {
                let _ = reply.send(self.models.make_room(model, bytes));
            }
            EngineCommand::MakeAdapterRoom { base, adapter, bytes, reply } => {
                let _ = reply.send(self.models.make_adapter_room(base, adapter, bytes));
            }
            EngineCommand::Keep { loaded, reply } => {
                let choices = &self.options.group;
                let kept =
                    guarded(|| self.models.keep(*loaded, |model, bytes| Group::new(model, bytes, choices)));
                let _ = reply.send(kept);
            }
            EngineCommand::Unload { model, reply } => {
                self.clear();
                let _ = reply.send(self.models.unload(model));
            }
            EngineCommand::Models { reply } => {
                self.clear();
                let _ = reply.send(Ok(self.models.status()));
            }
            EngineCommand::Figures { reply } => {
                let _ = reply.send(Ok(self.figures));
            }
            EngineCommand::Wake => waking.store(false, Ordering::Release),
        }
    }

    /// A tick when it is due; else one piece of other work.
    fn work(&mut self) {
        self.clear();
        let now = Instant::now();
        match self.next_tick(now) {
            Some(due) if due <= now => self.tick(due),
            Some(due) if !self.fits(due - now) => {}
            _ => self.between(),
        }
        self.clear();
    }

    /// Ends conversations that are over.
    fn clear(&mut self) {
        for group in self.models.groups() {
            let over: Vec<(usize, bool)> = group
                .slots()
                .filter(|(_, slot)| slot.is_gone() || slot.line.is_finished())
                .map(|(at, slot)| (at, slot.is_gone()))
                .collect();
            for (at, gone) in over {
                if let Some(slot) = group.remove(at)
                    && !gone
                {
                    slot.end();
                }
            }
        }
    }

    /// One frame of everybody on the clock, and of those without one who have audio; then what came too late for earlier
    /// ticks.
    fn tick(&mut self, due: Instant) {
        let patience = self.options.late_frames;
        for group in self.models.groups() {
            let turns = group.slots().filter_map(|(at, slot)| due_turn(at, slot, patience)).collect();
            step(group, turns);
        }
        for group in self.models.groups() {
            for _ in 0..=patience {
                let late = group.slots().filter_map(|(at, slot)| {
                    slot.lag.catch_up(slot.line.waiting()).then(|| turn(at, slot)).flatten()
                });
                let turns: Vec<Turn> = late.collect();
                if turns.is_empty() {
                    break;
                }
                step(group, turns);
            }
            for (_, slot) in group.slots().filter(|(_, slot)| slot.pace != Pace::Audio) {
                if slot.lag.shorten(slot.line.waiting()) {
                    slot.line.drop_oldest();
                }
            }
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(due);
        metrics::histogram!("ppx_tick_seconds").record(took.as_secs_f64());
        let passed = self.grid.advance(now);
        self.figures.ticks += 1;
        self.figures.longest = self.figures.longest.max(took);
        if took > TICK {
            self.figures.late += 1;
            metrics::counter!("ppx_ticks_late_total").increment(1);
        }
        if passed > 0 {
            let slots = self.models.groups().flat_map(Group::slots);
            slots.for_each(|(_, slot)| slot.lag.missed(passed, patience));
        }
    }

    /// A conversation to be opened, or a step of those that have audio and no clock.
    fn between(&mut self) {
        let started = Instant::now();
        if self.piece() {
            self.usual = (self.usual * 3 + started.elapsed()) / 4;
        }
    }

    /// One piece of work; `false` when there is none.
    fn piece(&mut self) -> bool {
        if let Some(opening) = self.openings.pop_front() {
            self.open(opening);
            return true;
        }
        if self.models.groups().any(Group::refresh) && self.grid.runs() {
            return true;
        }
        let mut stepped = false;
        for group in self.models.groups() {
            let ready = group.slots().filter(|(_, slot)| slot.pace == Pace::Audio);
            let turns: Vec<Turn> = ready.filter_map(|(at, slot)| turn(at, slot)).collect();
            if !turns.is_empty() {
                stepped = true;
                step(group, turns);
            }
        }
        stepped
    }

    fn open(&mut self, opening: Opening) {
        let Opening { request, place, mailbox, span, reply } = opening;
        let opened = span.clone().in_scope(|| self.make(request, place, mailbox, span));
        // When nobody waits any more the conversation in the answer is dropped, which frees the slot.
        let _ = reply.send(opened);
    }

    fn make(
        &mut self,
        request: Box<OpenRequest>,
        place: Place,
        mailbox: Mailbox,
        span: Span,
    ) -> Result<Opened, InferenceError> {
        let group = self.models.get(request.model.id);
        let ready =
            |group: &&mut Group| request.adapter.as_ref().is_none_or(|a| group.adapter(a.id).is_some());
        let Some(group) = group.filter(ready) else { return Ok(Opened::NotLoaded(request, place)) };
        let line = Arc::new(Line::default());
        let (sender, output) = mpsc::unbounded_channel();
        let slot = self.next;
        self.next += 1;
        let wires = Wires { line: Arc::clone(&line), output: sender, place, span };
        let prompt_frames = guarded(|| group.open(slot, &request, wires))?;
        let pace = request.pace;
        let leftover = Vec::new();
        Ok(Opened::Ready(Conversation { slot, prompt_frames, pace, mailbox, line, output, leftover }))
    }
}

/// The frame that a conversation has.
fn turn(at: usize, slot: &super::slot::Slot) -> Option<Turn> {
    Some(Turn { slot: at, pcm: slot.line.pop()?, absent: false })
}

/// What a conversation is fed at a tick.
fn due_turn(at: usize, slot: &mut super::slot::Slot, patience: u32) -> Option<Turn> {
    let Pace::Realtime { absent } = slot.pace else { return turn(at, slot) };
    match slot.lag.tick(slot.line.waiting(), absent, patience) {
        Due::Frame => turn(at, slot),
        Due::Silence => Some(Turn { slot: at, pcm: SILENCE.to_vec(), absent: true }),
        Due::Nothing => None,
    }
}

/// A step that fails is tried again for each conversation by itself, all of them put together anew: half-stepped state must
/// not be used. Only those whose own step fails end.
pub(super) fn step(group: &mut Group, turns: Vec<Turn>) {
    let again = turns.clone();
    if guarded(|| group.step(turns)).is_ok() {
        return;
    }
    metrics::counter!("ppx_steps_failed_total").increment(1);
    rebuild(group);
    for turn in again {
        let at = turn.slot;
        if let Err(error) = guarded(|| group.step(vec![turn])) {
            if let Some(slot) = group.remove(at) {
                slot.fail(error);
            }
            rebuild(group);
        }
    }
}

/// Conversations end when not even that is possible.
fn rebuild(group: &mut Group) {
    let rebuilt = guarded(|| {
        group.rebuild();
        Ok(())
    });
    if let Err(error) = rebuilt {
        for at in group.slots().map(|(at, _)| at).collect::<Vec<_>>() {
            if let Some(slot) = group.remove(at) {
                slot.fail(InferenceError::Engine(error.to_string()));
            }
        }
    }
}

/// A failure inside libtorch is a panic; it ends conversations, not the engine.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, InferenceError>) -> Result<T, InferenceError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
        let line = text.lines().next().unwrap_or_default().chars().take(300).collect();
        tracing::error!(error = line, "the model failed");
        Err(InferenceError::Engine(line))
    })
}
