//! The state of one conversation: codec both ways, language model, sampler, inject queue. All of it is made fresh when
//! the slot is opened, so nothing of an earlier conversation can be in it.

use std::rc::Rc;
use std::time::Instant;

use domain::frame::SAMPLES_PER_FRAME;
use domain::session::SamplingParams;
use personaplex::{DecState, EncState, GenState, Given, Sampler, Sampling};
use streams::inject_queue::{Decision, InjectItem, InjectQueue, Rejection};
use streams::layout::{TEXT, agent_codes};
use streams::prompt::SystemPrompt;
use streams::tokens::PromptCodes;

use super::models::LoadedModel;
use super::{AgentFrame, OpenRequest, Place};
use crate::InferenceError;

pub(super) struct Slot {
    model: Rc<LoadedModel>,
    lm: GenState,
    encoder: EncState,
    decoder: DecState,
    sampler: Sampler,
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
        let voice = match &request.voice {
            Some(clip) => model.voice(clip)?.to_vec(),
            None => Vec::new(),
        };
        let prompt = SystemPrompt::new(voice, request.prompt_tokens.clone());
        let mut lm = GenState::new(&model.lm);
        model.lm.prefill(&mut lm, &prompt.frames(&request.model.codes)).map_err(failed)?;
        let mut queue = InjectQueue::new(request.limits);
        queue.begin_conversation();
        Ok(Self {
            encoder: model.mimi.new_encoder(),
            decoder: model.mimi.new_decoder(),
            sampler: sampler(&request.sampling),
            codes: request.model.codes,
            prompt_frames: prompt.len(),
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
        let first = self.lm.next_frame() == self.prompt_frames;
        if !first && let Decision::Forced { token } = self.queue.decide() {
            given.text = Some(token);
            given.agent = Some(self.codes.silence);
        }
        let emitted = self
            .model
            .lm
            .step(&mut self.lm, &given, &mut self.sampler)
            .map_err(failed)?
            .ok_or_else(|| InferenceError::Engine("no frame was emitted".into()))?;
        if first {
            self.queue.observe(emitted.frame[TEXT]);
        }
        let ahead = self.lm.decided_text().ok_or_else(|| InferenceError::Engine("no text decided".into()))?;
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
