//! What the engine keeps of one conversation beside its places in the batches: line, inject queue, rows.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use domain::ModelId;
use domain::session::SamplingParams;
use personaplex::{Emitted, Frame, Prefix, Sampler, Sampling};
use streams::inject_queue::{Decision, InjectEvent, InjectItem, InjectQueue, QueueState, Rejection};
use streams::layout::{TEXT, agent_codes};
use tokio::sync::mpsc;
use tracing::Span;

use super::conversation::{Line, MAX_UNTAKEN, Output};
use super::pace::Lag;
use super::window::{Refresh, Window};
use super::{AgentFrame, Notice, OpenRequest, Pace, Place, Rows, SlotId};
use crate::InferenceError;

/// One conversation.
pub(super) struct Slot {
    pub(super) id: SlotId,
    pub(super) line: Arc<Line>,
    pub(super) pace: Pace,
    pub(super) lag: Lag,
    /// The adapter it goes through.
    pub(super) adapter: Option<ModelId>,
    output: mpsc::UnboundedSender<Output>,
    queue: InjectQueue,
    /// Complete rows from the beginning on.
    log: Vec<Frame>,
    /// What is known of the rows after them.
    open: Vec<Frame>,
    /// What was decided to be forced at the call under way, which may be tried again.
    decided: Option<Option<i32>>,
    prompt_frames: usize,
    /// Frame number of the first frame here, which the inject queue calls 0.
    base: u64,
    /// Frame number of the conversation minus that in the batch.
    shift: usize,
    /// No frame was emitted yet.
    first: bool,
    /// The prompt, for the next window.
    pub(super) prefix: Rc<Prefix>,
    pub(super) refresh: Option<Refresh>,
    sampler: Sampler,
    /// The end of the window was announced.
    announced: bool,
    notices: Vec<Notice>,
    span: Span,
    /// Given back when the state is gone.
    _place: Place,
}

/// The engine's ends of a conversation.
pub(super) struct Wires {
    pub(super) line: Arc<Line>,
    pub(super) output: mpsc::UnboundedSender<Output>,
    pub(super) place: Place,
    pub(super) span: Span,
}

/// A user frame about to be fed.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) slot: usize,
    pub(super) pcm: Vec<f32>,
    pub(super) absent: bool,
}

impl Slot {
    /// `prefix` is the prompt's; `log` are the rows that are complete when it starts, `frames` the frames that its
    /// place in the batch has seen.
    pub(super) fn new(
        id: SlotId,
        request: &OpenRequest,
        prefix: Rc<Prefix>,
        (log, frames): (Vec<Frame>, usize),
        sampler: Sampler,
        wires: Wires,
    ) -> Self {
        let mut queue = InjectQueue::new(request.limits);
        queue.begin_conversation();
        Self {
            id,
            line: wires.line,
            pace: request.pace,
            lag: Lag::default(),
            adapter: request.adapter.as_ref().map(|a| a.id),
            output: wires.output,
            queue,
            base: (log.len() - 1 - prefix.frames()) as u64,
            shift: log.len() - 1 - frames,
            log,
            open: Vec::new(),
            decided: None,
            prompt_frames: prefix.frames(),
            first: true,
            prefix,
            refresh: None,
            sampler,
            announced: false,
            notices: Vec::new(),
            span: wires.span,
            _place: wires.place,
        }
    }

    /// `room` is the most tokens that still have a place before the conversation ends.
    pub(super) fn inject(&mut self, item: InjectItem, room: Option<usize>) -> Result<usize, Rejection> {
        let _entered = self.span.enter();
        if let Some(limit) = room
            && item.tokens.len() > limit
        {
            return Err(Rejection::TooLong { tokens: item.tokens.len(), limit });
        }
        self.queue.offer(item)
    }

    /// Whether nobody holds the conversation any more.
    pub(super) fn is_gone(&self) -> bool {
        self.line.is_closed()
    }

    /// The token to force at this call. The call that brings user frame i decides the text and the first codebook of
    /// frame i + 1, so the queue runs one frame ahead of what is emitted. Frame 0 comes from the prompt alone and frame 1
    /// is decided in the first call; both are free. Nothing starts while the window is being filled anew.
    pub(super) fn decide(&mut self) -> Option<i32> {
        if self.decided.is_none() {
            self.decided = Some(self.ask_queue());
        }
        self.decided.flatten()
    }

    fn ask_queue(&mut self) -> Option<i32> {
        if self.first || (self.refresh.is_some() && self.queue.state() != QueueState::Injecting) {
            return None;
        }
        match self.queue.decide() {
            Decision::Forced { token } => Some(token),
            Decision::Free => None,
        }
    }

    /// Takes what the step gave: the frame it completed and the text decided for the one after it.
    pub(super) fn observe(&mut self, emitted: &Emitted, ahead: i32, row: Frame) {
        self.decided = None;
        if std::mem::take(&mut self.first) {
            self.queue.observe(emitted.frame[TEXT]);
        }
        self.queue.observe(ahead);
        self.log.push(row);
    }

    /// Hands a frame out.
    pub(super) fn give(&mut self, emitted: &Emitted, turn: Turn, pcm: Vec<f32>, took: Duration) -> bool {
        let index = (emitted.index + self.shift - self.prompt_frames) as u64;
        let hidden = self.queue.is_hidden(index - self.base);
        let frame = AgentFrame {
            index,
            pcm,
            agent: agent_codes(&emitted.frame),
            text: (!hidden).then_some(emitted.frame[TEXT]),
            hidden,
            events: self.events(),
            notices: std::mem::take(&mut self.notices),
            user: turn.pcm,
            was_absent: turn.absent,
            took,
        };
        self.queue.hear(audio::levels::rms_dbfs(&frame.pcm), audio::levels::rms_dbfs(&frame.user));
        let untaken = self.line.given(self.pace);
        let _ = self.output.send(Output::Frame(Box::new(frame)));
        untaken <= MAX_UNTAKEN || self.pace == Pace::Audio
    }

    /// Tokens of injections that wait.
    pub(super) fn waiting_tokens(&self) -> usize {
        self.queue.waiting_tokens()
    }

    /// Complete rows so far.
    pub(super) fn log(&self) -> &[Frame] {
        &self.log
    }

    /// What is known of the rows after the complete ones.
    pub(super) fn open(&self) -> &[Frame] {
        &self.open
    }

    pub(super) fn set_open(&mut self, rows: &[Frame]) {
        self.open.clear();
        self.open.extend_from_slice(rows);
    }

    pub(super) fn sampler(&self) -> Sampler {
        self.sampler.clone()
    }

    /// Whether `frames` frames before the end is the moment to say so.
    pub(super) fn announces_end(&mut self, frames: usize) -> bool {
        let due = frames <= Window::announced() && !self.announced;
        self.announced |= due;
        due
    }

    /// The next frame carries a notice.
    pub(super) fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// Its place in the batch was made anew and has seen `frames` frames.
    pub(super) fn moved(&mut self, frames: usize) {
        self.shift = self.log.len() - 1 - frames;
    }

    /// All audio is answered.
    pub(super) fn end(mut self) {
        let events = self.finish();
        let _ = self.output.send(Output::Ended(events));
    }

    /// What the end does to injections.
    pub(super) fn finish(&mut self) -> Vec<InjectEvent> {
        self.queue.end_session();
        self.events()
    }

    /// What the queue did, in the conversation's frame numbers.
    fn events(&mut self) -> Vec<InjectEvent> {
        let mut events = self.queue.drain_events();
        for event in &mut events {
            match event {
                InjectEvent::Started { frame, .. } => *frame += self.base,
                InjectEvent::Completed { frame_start, frame_end, .. } => {
                    *frame_start += self.base;
                    *frame_end += self.base;
                }
                _ => {}
            }
        }
        events
    }

    pub(super) fn fail(self, error: InferenceError) {
        let _ = self.output.send(Output::Failed(error));
    }

    /// Rows from `since` on, with what is known of the rows after the complete ones.
    pub(super) fn rows(&self, since: usize) -> Rows {
        let first = since.min(self.log.len());
        Rows { first, complete: self.log[first..].to_vec(), open: self.open.clone() }
    }
}

/// A generator of its own for every conversation; parameters outside their bounds are moved to the nearest bound.
pub(super) fn sampler(params: &SamplingParams) -> Sampler {
    let temperature = |value: f64, usual: f64| if value.is_nan() { usual } else { value.clamp(0.0, 1.5) };
    let usual = SamplingParams::default();
    let sampling = Sampling {
        text_temperature: temperature(params.text_temperature, usual.text_temperature),
        text_top_k: params.text_topk.clamp(1, 500) as usize,
        audio_temperature: temperature(params.audio_temperature, usual.audio_temperature),
        audio_top_k: params.audio_topk.clamp(1, 2_048) as usize,
    };
    Sampler::new(sampling, params.seed.unwrap_or_else(rand::random))
}
