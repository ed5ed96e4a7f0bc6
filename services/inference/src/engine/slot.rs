//! The state of one conversation: codec both ways, language model, sampler, inject queue. All of it is made fresh when
//! the slot is opened, so nothing of an earlier conversation can be in it.

use std::rc::Rc;
use std::time::Instant;

use domain::frame::SAMPLES_PER_FRAME;
use domain::session::SamplingParams;
use personaplex::{BatchOptions, DecState, EncState, Given, LmBatch, Order, Sampler, Sampling};
use streams::inject_queue::{Decision, InjectItem, InjectQueue, Rejection};
use streams::layout::{TEXT, agent_codes};
use streams::tokens::PromptCodes;

use super::models::LoadedModel;
use super::{AgentFrame, OpenRequest, Place};
use crate::InferenceError;

pub(super) struct Slot {
    model: Rc<LoadedModel>,
    lm: LmBatch,
    encoder: EncState,
    decoder: DecState,
    queue: InjectQueue,
    codes: PromptCodes,
    prompt_frames: usize,
    /// Given back when the state is gone.
    _place: Place,
}

impl Slot {
    /// Feeds the prompt in one pass: voice, silence, text, silence. The codec starts anew for the conversation.
    pub(super) fn open(
        model: Rc<LoadedModel>,
        request: &OpenRequest,
        place: Place,
    ) -> Result<Self, InferenceError> {
        let prefix = model.lm.prefill(&model.prompt(request)?, Order::Early).map_err(failed)?;
        let mut lm = LmBatch::new(&model.lm, 1, BatchOptions::default()).map_err(failed)?;
        model.lm.open(&mut lm, 0, &prefix, sampler(&request.sampling)).map_err(failed)?;
        let mut queue = InjectQueue::new(request.limits);
        queue.begin_conversation();
        Ok(Self {
            encoder: model.mimi.new_encoder(),
            decoder: model.mimi.new_decoder(),
            codes: request.model.codes,
            prompt_frames: prefix.frames(),
            model,
            lm,
            queue,
            _place: place,
        })
    }

    pub(super) const fn prompt_frames(&self) -> usize {
        self.prompt_frames
    }

    pub(super) fn inject(&mut self, item: InjectItem) -> Result<usize, Rejection> {
        self.queue.offer(item)
    }

    /// One frame: user audio in, agent audio and text out. The call that brings user frame i decides the text and the
    /// first codebook of frame i + 1, so the queue runs one frame ahead of what is emitted; whether a frame is hidden is
    /// therefore asked for the emitted frame, not for the call.
    pub(super) fn step(&mut self, pcm: &[f32]) -> Result<AgentFrame, InferenceError> {
        let started = Instant::now();
        let user = self.model.mimi.encode_frame(&mut self.encoder, pcm).map_err(failed)?;
        let mut given = Given { user: Some(user), ..Given::default() };
        // Frame 0 comes from the prompt alone and frame 1 is decided in the same call; both are free.
        let first = self.lm.next_frame(0).map_err(failed)? == self.prompt_frames;
        if !first && let Decision::Forced { token } = self.queue.decide() {
            given.text = Some(token);
            given.agent = Some(self.codes.silence);
        }
        let emitted = self.model.lm.step(&mut self.lm, &[Some(given)]).map_err(failed)?[0]
            .ok_or_else(|| InferenceError::Engine("no frame was emitted".into()))?;
        if first {
            self.queue.observe(emitted.frame[TEXT]);
        }
        let ahead = self.lm.decided_text(0).map_err(failed)?;
        self.queue.observe(ahead);
        let agent = agent_codes(&emitted.frame);
        let pcm = self.model.mimi.decode_frame(&mut self.decoder, &agent).map_err(failed)?;
        if pcm.len() != SAMPLES_PER_FRAME {
            return Err(InferenceError::Engine(format!("the codec gave {} samples", pcm.len())));
        }
        let index = (emitted.index - self.prompt_frames) as u64;
        let hidden = self.queue.is_hidden(index);
        Ok(AgentFrame {
            index,
            pcm,
            agent,
            text: (!hidden).then_some(emitted.frame[TEXT]),
            hidden,
            events: self.queue.drain_events(),
            took: started.elapsed(),
        })
    }
}

/// A generator of its own for every conversation; parameters outside their bounds are moved to the nearest bound.
fn sampler(params: &SamplingParams) -> Sampler {
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

fn failed(error: personaplex::PersonaplexError) -> InferenceError {
    InferenceError::Engine(error.to_string())
}
