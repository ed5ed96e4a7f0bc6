//! One step of a model's conversations.

use std::time::Instant;

use domain::frame::SAMPLES_PER_FRAME;
use personaplex::{Emitted, Given};
use streams::layout::agent_codes;
use tch::{Kind, Tensor};

use super::group::{Group, failed};
use super::slot::{Slot, Turn};
use crate::InferenceError;

/// Codebooks of each side.
const CODEBOOKS: usize = 8;

impl Group {
    /// One frame of every conversation that has a turn; the others are as if there had been no call. Those that cannot
    /// go on are told and taken out.
    pub(super) fn step(&mut self, mut turns: Vec<Turn>) -> Result<(), InferenceError> {
        let started = Instant::now();
        self.refuse_misshapen(&mut turns);
        self.watch_windows(&mut turns);
        if turns.is_empty() {
            return Ok(());
        }
        let given = self.listen(&turns)?;
        let emitted = self.model.lm.step(&mut self.lm, &given).map_err(failed)?;
        let waves = self.speak(&turns, &emitted)?;
        self.observe(&turns, &emitted)?;
        for (turn, wave) in turns.into_iter().zip(waves) {
            let at = turn.slot;
            let (Some(slot), Some(emitted)) = (&mut self.slots[at], &emitted[at]) else { continue };
            if !slot.give(emitted, turn, wave, started.elapsed())
                && let Some(slot) = self.remove(at)
            {
                slot.fail(InferenceError::NotTaken);
            }
        }
        Ok(())
    }

    fn refuse_misshapen(&mut self, turns: &mut Vec<Turn>) {
        turns.retain(|turn| {
            let fits = turn.pcm.len() == SAMPLES_PER_FRAME;
            if !fits && let Some(slot) = self.slots[turn.slot].take() {
                self.lm.close(turn.slot);
                slot.fail(InferenceError::Engine(format!("a frame has {} samples", turn.pcm.len())));
            }
            fits
        });
    }

    fn active(&self, turns: &[Turn]) -> Vec<bool> {
        let mut active = vec![false; self.slots.len()];
        turns.iter().for_each(|turn| active[turn.slot] = true);
        active
    }

    /// Codes of the user's audio and what the inject queues force.
    fn listen(&mut self, turns: &[Turn]) -> Result<Vec<Option<Given>>, InferenceError> {
        let mut pcm = vec![0.0f32; self.slots.len() * SAMPLES_PER_FRAME];
        for turn in turns {
            pcm[turn.slot * SAMPLES_PER_FRAME..][..SAMPLES_PER_FRAME].copy_from_slice(&turn.pcm);
        }
        let pcm = Tensor::from_slice(&pcm).view([self.slots.len() as i64, 1, SAMPLES_PER_FRAME as i64]);
        let active = self.active(turns);
        let codes = self.model.mimi.encode_step(&mut self.encoder, &pcm, &active).map_err(failed)?;
        let width = codes.size()[1] as usize;
        let codes =
            Vec::<i64>::try_from(codes.flatten(0, -1).to_device(tch::Device::Cpu)).map_err(no_host)?;
        let mut given = vec![None; self.slots.len()];
        for turn in turns {
            let user = std::array::from_fn(|k| codes[turn.slot * width + k] as i32);
            let text = self.slots[turn.slot].as_mut().and_then(Slot::decide);
            let agent = text.map(|_| self.codes.silence);
            given[turn.slot] = Some(Given { user: Some(user), text, agent });
        }
        Ok(given)
    }

    /// Samples of the agent's codes, one set a turn.
    fn speak(
        &mut self,
        turns: &[Turn],
        emitted: &[Option<Emitted>],
    ) -> Result<Vec<Vec<f32>>, InferenceError> {
        let mut codes = vec![0i64; self.slots.len() * CODEBOOKS];
        for turn in turns {
            let emitted = emitted[turn.slot].as_ref().ok_or_else(not_emitted)?;
            let to = &mut codes[turn.slot * CODEBOOKS..][..CODEBOOKS];
            to.iter_mut().zip(agent_codes(&emitted.frame)).for_each(|(to, code)| *to = i64::from(code));
        }
        let codes = Tensor::from_slice(&codes).view([self.slots.len() as i64, CODEBOOKS as i64, 1]);
        let active = self.active(turns);
        let wave = self.model.mimi.decode_step(&mut self.decoder, &codes, &active).map_err(failed)?;
        let wave = wave.to_device(tch::Device::Cpu).to_kind(Kind::Float).contiguous();
        let samples = wave.size()[2] as usize;
        if samples != SAMPLES_PER_FRAME {
            return Err(InferenceError::Engine(format!("the codec gave {samples} samples")));
        }
        let wave = Vec::<f32>::try_from(wave.flatten(0, -1)).map_err(no_host)?;
        Ok(turns.iter().map(|turn| wave[turn.slot * samples..][..samples].to_vec()).collect())
    }

    /// Writes down what every conversation has come to. Until here a failed step has changed nothing that is kept.
    fn observe(&mut self, turns: &[Turn], emitted: &[Option<Emitted>]) -> Result<(), InferenceError> {
        for turn in turns {
            let emitted = emitted[turn.slot].as_ref().ok_or_else(not_emitted)?;
            let ahead = self.lm.decided_text(turn.slot).map_err(failed)?;
            let (complete, open) = self.lm.rows(turn.slot).map_err(failed)?;
            let row = *complete.last().ok_or_else(not_emitted)?;
            if let Some(slot) = &mut self.slots[turn.slot] {
                slot.set_open(open);
                slot.observe(emitted, ahead, row);
            }
        }
        Ok(())
    }
}

fn not_emitted() -> InferenceError {
    InferenceError::Engine("no frame was emitted".into())
}

fn no_host(error: tch::TchError) -> InferenceError {
    InferenceError::Engine(error.to_string())
}
