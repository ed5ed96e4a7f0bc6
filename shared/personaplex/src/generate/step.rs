use tch::{Kind, Tensor};

use super::state::{Emitted, GenState, Given, Order, UNKNOWN};
use crate::lm::ZERO;
use crate::{Frame, Lm, PersonaplexError, Sampler};

/// Agent codebooks, and so the depformer steps that serving needs.
const AGENT_STEPS: usize = 8;

impl Lm {
    /// Feeds prompt frames, all values given, in one pass (voice, silence, text, silence). Only on a fresh state. An empty
    /// prompt does nothing. The first frame after it is decided by the first [`Lm::step`].
    pub fn prefill(&self, state: &mut GenState, frames: &[Frame]) -> Result<(), PersonaplexError> {
        if state.frames > 0 {
            return Err(PersonaplexError::NotFresh { frames: state.frames });
        }
        for frame in frames {
            self.check_ids("prompt text", &frame[..1], self.config.text_card)?;
            self.check_ids("prompt audio", &frame[1..], self.config.card)?;
        }
        for (i, frame) in frames.iter().enumerate() {
            state.give(i, 0, frame);
        }
        state.frames = frames.len();
        state.decided = frames.len() + 1;
        if !frames.is_empty() {
            self.feed(state, frames.len() + 1);
        }
        Ok(())
    }

    /// One 80 ms frame. `given.user` are the codes of frame [`GenState::next_frame`]; `given.text` and `given.agent`
    /// belong to frame [`GenState::forced_frame`] (in the early order the one after). So an injection of N tokens on
    /// frames s..s+N-1 starts with the call that brings user frame s - 1. In the early order the result is always there.
    pub fn step(
        &self,
        state: &mut GenState,
        given: &Given,
        sampler: &mut Sampler,
    ) -> Result<Option<Emitted>, PersonaplexError> {
        self.check_given(state, given)?;
        let frame = state.frames;
        let _span = tracing::trace_span!("lm.step", frame.index = frame).entered();
        match state.options.order {
            Order::Early => {
                // After a prompt (or at the very start) the row of this frame is still open.
                self.decide(state, frame + 1, sampler);
                take_in(state, given);
                self.decide(state, frame + 2, sampler);
                state.frames += 1;
                Ok(Some(state.collect(frame)))
            }
            Order::Reference => {
                take_in(state, given);
                self.decide(state, frame + 1, sampler);
                state.frames += 1;
                Ok((frame > 0).then(|| state.collect(frame - 1)))
            }
        }
    }

    fn check_given(&self, state: &GenState, given: &Given) -> Result<(), PersonaplexError> {
        match &given.user {
            Some(codes) => self.check_ids("user", codes, self.config.card)?,
            None if !state.options.sample_user => {
                return Err(PersonaplexError::NoUserCodes { frame: state.frames });
            }
            None => {}
        }
        if let Some(text) = given.text {
            self.check_ids("text", &[text], self.config.text_card)?;
        }
        match &given.agent {
            Some(codes) => self.check_ids("agent", codes, self.config.card),
            None => Ok(()),
        }
    }

    fn check_ids(&self, what: &'static str, ids: &[i32], high: i64) -> Result<(), PersonaplexError> {
        match ids.iter().find(|id| **id < ZERO || i64::from(**id) >= high) {
            None => Ok(()),
            Some(id) => {
                Err(PersonaplexError::IdRange { what, value: i64::from(*id), low: i64::from(ZERO), high })
            }
        }
    }

    /// Feeds rows up to but not including `end`.
    fn feed(&self, state: &mut GenState, end: usize) {
        if end <= state.fed {
            return;
        }
        tch::no_grad(|| {
            let x = self.embeddings.rows(state.rows(state.fed, end));
            let hidden = self.temporal.step(&mut state.temporal, &x);
            state.hidden = Some(hidden.narrow(1, hidden.size()[1] - 1, 1));
        });
        state.fed = end;
    }

    /// Decides text and agent (and, in self-play, user) values of row `p` from the rows before it, unless done.
    fn decide(&self, state: &mut GenState, p: usize, sampler: &mut Sampler) {
        if state.decided > p {
            return;
        }
        self.feed(state, p);
        let hidden = state.hidden.as_ref().expect("row 0 has been fed").shallow_clone();
        let mut row = *state.row(p);
        tch::no_grad(|| self.fill(&hidden, &mut row, state.options.sample_user, sampler));
        *state.row(p) = row;
        state.decided = p + 1;
    }

    /// Samples the unknown values of a row in stream order; every value used, given or sampled, feeds the next step.
    fn fill(&self, hidden: &Tensor, row: &mut Frame, sample_user: bool, sampler: &mut Sampler) {
        if row[0] == UNKNOWN {
            row[0] = sampler.text(&to_host(&self.text_logits(hidden)));
        }
        let limit = if sample_user { self.config.dep_q as usize } else { AGENT_STEPS };
        // Steps after the last unknown codebook change nothing.
        let steps = (0..limit).rev().find(|s| row[s + 1] == UNKNOWN).map_or(0, |s| s + 1);
        let mut depformer = self.depformer.state(1, self.kind, self.device);
        for s in 0..steps {
            let previous = Tensor::from_slice(&[i64::from(row[s])]).view([1, 1]).to_device(self.device);
            let logits = self.depformer.step(&mut depformer, hidden, &previous);
            if row[s + 1] == UNKNOWN {
                row[s + 1] = sampler.audio(&to_host(&logits));
            }
        }
    }
}

/// Writes what was given into the rows.
fn take_in(state: &mut GenState, given: &Given) {
    let forced = state.forced_frame();
    if let Some(codes) = &given.user {
        let frame = state.frames;
        state.give(frame, 1 + AGENT_STEPS, codes);
    }
    if let Some(text) = given.text {
        state.give(forced, 0, &[text]);
    }
    if let Some(codes) = &given.agent {
        state.give(forced, 1, codes);
    }
}

fn to_host(logits: &Tensor) -> Vec<f32> {
    Vec::try_from(logits.to_kind(Kind::Float).flatten(0, -1)).expect("a flat f32 tensor")
}
