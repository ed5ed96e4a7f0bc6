//! What the engine keeps of one conversation beside its places in the batches: line, inject queue, rows.

use std::sync::Arc;
use std::time::Duration;

use domain::session::SamplingParams;
use personaplex::{Emitted, Frame, Sampler, Sampling};
use streams::inject_queue::{Decision, InjectEvent, InjectItem, InjectQueue, Rejection};
use streams::layout::{TEXT, agent_codes};
use tokio::sync::mpsc;
use tracing::Span;

use super::conversation::{Line, MAX_UNTAKEN, Output};
use super::pace::Lag;
use super::{AgentFrame, OpenRequest, Pace, Place, Rows, SlotId};
use crate::InferenceError;

/// One conversation.
pub(super) struct Slot {
    pub(super) id: SlotId,
    pub(super) line: Arc<Line>,
    pub(super) pace: Pace,
    pub(super) lag: Lag,
    output: mpsc::UnboundedSender<Output>,
    queue: InjectQueue,
    /// Complete rows from the beginning on.
    log: Vec<Frame>,
    prompt_frames: usize,
    /// Frame number of the conversation minus that in the batch.
    shift: usize,
    /// No frame was emitted yet.
    first: bool,
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
pub(super) struct Turn {
    pub(super) slot: usize,
    pub(super) pcm: Vec<f32>,
    pub(super) absent: bool,
}

impl Slot {
    /// `log` are the rows that are complete when it starts.
    pub(super) fn new(
        id: SlotId,
        request: &OpenRequest,
        prompt_frames: usize,
        log: Vec<Frame>,
        wires: Wires,
    ) -> Self {
        let mut queue = InjectQueue::new(request.limits);
        queue.begin_conversation();
        Self {
            id,
            line: wires.line,
            pace: request.pace,
            lag: Lag::default(),
            output: wires.output,
            queue,
            log,
            prompt_frames,
            shift: 0,
            first: true,
            span: wires.span,
            _place: wires.place,
        }
    }

    pub(super) fn inject(&mut self, item: InjectItem) -> Result<usize, Rejection> {
        let _entered = self.span.enter();
        self.queue.offer(item)
    }

    /// Whether nobody holds the conversation any more.
    pub(super) fn is_gone(&self) -> bool {
        self.line.is_closed()
    }

    /// The token to force at this call. The call that brings user frame i decides the text and the first codebook of
    /// frame i + 1, so the queue runs one frame ahead of what is emitted. Frame 0 comes from the prompt alone and frame 1
    /// is decided in the first call; both are free.
    pub(super) fn decide(&mut self) -> Option<i32> {
        if self.first {
            return None;
        }
        match self.queue.decide() {
            Decision::Forced { token } => Some(token),
            Decision::Free => None,
        }
    }

    /// Takes what the step gave: the frame it completed and the text decided for the one after it.
    pub(super) fn observe(&mut self, emitted: &Emitted, ahead: i32, row: Frame) {
        if std::mem::take(&mut self.first) {
            self.queue.observe(emitted.frame[TEXT]);
        }
        self.queue.observe(ahead);
        self.log.push(row);
    }

    /// Hands a frame out.
    pub(super) fn give(&mut self, emitted: &Emitted, turn: Turn, pcm: Vec<f32>, took: Duration) -> bool {
        let index = (emitted.index + self.shift - self.prompt_frames) as u64;
        let hidden = self.queue.is_hidden(index);
        let frame = AgentFrame {
            index,
            pcm,
            agent: agent_codes(&emitted.frame),
            text: (!hidden).then_some(emitted.frame[TEXT]),
            hidden,
            events: self.queue.drain_events(),
            user: turn.pcm,
            was_absent: turn.absent,
            took,
        };
        let untaken = self.line.given(self.pace);
        let _ = self.output.send(Output::Frame(Box::new(frame)));
        untaken <= MAX_UNTAKEN || self.pace == Pace::Audio
    }

    /// All audio is answered.
    pub(super) fn end(mut self) {
        let events = self.finish();
        let _ = self.output.send(Output::Ended(events));
    }

    /// What the end does to injections.
    pub(super) fn finish(&mut self) -> Vec<InjectEvent> {
        self.queue.end_session();
        self.queue.drain_events()
    }

    pub(super) fn fail(self, error: InferenceError) {
        let _ = self.output.send(Output::Failed(error));
    }

    /// Rows from `since` on, with what is known of the rows after the complete ones.
    pub(super) fn rows(&self, since: usize, open: &[Frame]) -> Rows {
        let first = since.min(self.log.len());
        Rows { first, complete: self.log[first..].to_vec(), open: open.to_vec() }
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
