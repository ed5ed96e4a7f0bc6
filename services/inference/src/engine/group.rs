//! The conversations of one model: they are the slots of one batch and step together.

use std::rc::Rc;
use std::time::Instant;

use domain::ModelId;
use domain::frame::SAMPLES_PER_FRAME;
use personaplex::{
    BatchOptions, Beside, DecState, Emitted, EncState, Frame, Given, LmBatch, Order, PersonaplexError, Prefix,
};
use streams::inject_queue::{InjectItem, Rejection};
use streams::layout::agent_codes;
use streams::tokens::PromptCodes;
use tch::{Kind, Tensor};

use super::models::{LoadedAdapter, LoadedModel};
use super::prefixes::{Prefixes, PromptKey};
use super::slot::{Slot, Turn, Wires, sampler};
use super::window::{Refresh, Window};
use super::{ModelStatus, Notice, OpenRequest, Rows, SlotId, WindowPolicy};
use crate::InferenceError;

/// Codebooks of each side.
const CODEBOOKS: usize = 8;

/// A model with the state of its conversations. The slots of the codec and of the language model have the same numbers.
pub(super) struct Group {
    pub(super) model: LoadedModel,
    lm: LmBatch,
    encoder: EncState,
    decoder: DecState,
    slots: Vec<Option<Slot>>,
    codes: PromptCodes,
    prefixes: Prefixes,
    prefix_hits: u64,
    window: Window,
    adapters: Vec<PutAdapter>,
    /// Bytes reckoned for the model and its conversations.
    bytes: u64,
}

/// An adapter on the model.
struct PutAdapter {
    id: ModelId,
    beside: Beside,
    bytes: u64,
}

/// Sizes of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupOptions {
    /// Conversations at once.
    pub(super) slots: usize,
    /// Rows of a conversation; none = the model's window.
    pub(super) rows: Option<usize>,
    pub(super) policy: WindowPolicy,
    /// Newest rows that a fresh window starts with.
    pub(super) kept_rows: usize,
    /// Bytes of prompts kept.
    pub(super) prefix_bytes: usize,
}

impl Group {
    /// Takes the memory of all its conversations.
    pub(super) fn new(
        model: LoadedModel,
        bytes: u64,
        choices: &GroupOptions,
    ) -> Result<Self, InferenceError> {
        let slots = choices.slots;
        let graphs = model.lm.device().is_cuda();
        let options = BatchOptions { graphs, rows: choices.rows, ..BatchOptions::default() };
        let lm = LmBatch::new(&model.lm, slots, options).map_err(failed)?;
        let mut group = Self {
            window: Window::new(choices.policy, lm.window(), choices.kept_rows),
            prefixes: Prefixes::new(choices.prefix_bytes),
            prefix_hits: 0,
            adapters: Vec::new(),
            bytes,
            lm,
            encoder: model.mimi.new_encoder_batch(slots as i64, 1),
            decoder: model.mimi.new_decoder_batch(slots as i64, 1),
            slots: (0..slots).map(|_| None).collect(),
            codes: model.codes,
            model,
        };
        if graphs {
            group.model.mimi.record_encoder(&mut group.encoder).map_err(failed)?;
            group.model.mimi.record_decoder(&mut group.decoder).map_err(failed)?;
        }
        Ok(group)
    }

    /// Whether no conversation is in it.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Bytes reckoned for it and its adapters.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.adapters.iter().map(|a| a.bytes).sum::<u64>()
    }

    /// Conversations of an adapter, or all.
    pub(super) fn sessions(&self, adapter: Option<ModelId>) -> usize {
        let slots = self.slots.iter().flatten();
        slots.filter(|slot| adapter.is_none() || slot.adapter == adapter).count()
    }

    /// An adapter on the model.
    pub(super) fn adapter(&self, id: ModelId) -> Option<&Beside> {
        self.adapters.iter().find(|a| a.id == id).map(|a| &a.beside)
    }

    /// Puts an adapter on the model.
    pub(super) fn keep(&mut self, loaded: LoadedAdapter) -> Result<(), InferenceError> {
        let LoadedAdapter { id, adapter, bytes } = loaded;
        let failed =
            |e: PersonaplexError| InferenceError::Model { model: id.to_string(), detail: e.to_string() };
        let beside = self.model.lm.put_beside(&adapter).map_err(failed)?;
        self.adapters.push(PutAdapter { id, beside, bytes });
        Ok(())
    }

    /// Takes an adapter that no conversation uses off the model.
    pub(super) fn unload(&mut self, id: ModelId) -> Result<(), InferenceError> {
        let model = id.to_string();
        let sessions = self.sessions(Some(id));
        if sessions > 0 {
            return Err(InferenceError::ModelInUse { model, sessions });
        }
        let at = self.adapters.iter().position(|a| a.id == id);
        let gone = self.adapters.remove(at.ok_or(InferenceError::NotLoaded { model })?);
        self.prefixes.forget(id);
        self.model.lm.remove_beside(&gone.beside);
        Ok(())
    }

    /// The model and its adapters, as told to others.
    pub(super) fn status(&self) -> Vec<ModelStatus> {
        let base = ModelStatus {
            id: self.model.id,
            base: None,
            sessions: self.slots.iter().flatten().filter(|slot| slot.adapter.is_none()).count(),
            bytes: self.bytes,
            prompts: self.prefixes.len(),
            prompt_bytes: self.prefixes.bytes() as u64,
            prompt_hits: self.prefix_hits,
        };
        let adapters = self.adapters.iter().map(|a| ModelStatus {
            id: a.id,
            base: Some(self.model.id),
            sessions: self.sessions(Some(a.id)),
            bytes: a.bytes,
            ..ModelStatus::none()
        });
        std::iter::once(base).chain(adapters).collect()
    }

    /// Conversations with their numbers.
    pub(super) fn slots(&mut self) -> impl Iterator<Item = (usize, &mut Slot)> {
        self.slots.iter_mut().enumerate().filter_map(|(b, slot)| Some((b, slot.as_mut()?)))
    }

    /// The conversation of this id.
    pub(super) fn find(&mut self, id: SlotId) -> Option<(usize, &mut Slot)> {
        self.slots().find(|(_, slot)| slot.id == id)
    }

    /// Takes a conversation out.
    pub(super) fn remove(&mut self, at: usize) -> Option<Slot> {
        self.lm.close(at);
        self.slots[at].take()
    }

    /// Feeds the prompt in one pass (voice, silence, text, silence) unless it is kept, and what an interrupted conversation
    /// has come to. The codec starts anew. Gives the number of prompt frames.
    pub(super) fn open(
        &mut self,
        id: SlotId,
        request: &OpenRequest,
        wires: Wires,
    ) -> Result<usize, InferenceError> {
        let at = self.slots.iter().position(Option::is_none).ok_or_else(no_slot)?;
        let prefix = self.prefix(request)?;
        let (sampler, lm) = (sampler(&request.sampling), &self.model.lm);
        let rows = request.resume.as_deref().unwrap_or_default();
        let log = match complete(rows) {
            0 => {
                lm.open(&mut self.lm, at, &prefix, sampler.clone()).map_err(failed)?;
                self.lm.rows(at).map_err(failed)?.0.to_vec()
            }
            n if n < prefix.fed() => return Err(InferenceError::Resume { rows: n, prompt: prefix.fed() }),
            n => {
                let mut refresh = Refresh::resume(&prefix, &rows[..n], &self.window);
                while !refresh.advance(lm, &rows[..n]).map_err(failed)? {}
                let whole = refresh.finish(lm, &rows[n..]).map_err(failed)?;
                lm.open(&mut self.lm, at, &whole, sampler.clone()).map_err(failed)?;
                rows[..n].to_vec()
            }
        };
        self.encoder.reset(at as i64);
        self.decoder.reset(at as i64);
        let prompt_frames = prefix.frames();
        let frames = self.lm.next_frame(at).map_err(failed)?;
        self.slots[at] = Some(Slot::new(id, request, prefix, (log, frames), sampler, wires));
        Ok(prompt_frames)
    }

    /// The prompt of a request after it has been through the model.
    fn prefix(&mut self, request: &OpenRequest) -> Result<Rc<Prefix>, InferenceError> {
        let key = PromptKey {
            adapter: request.adapter.as_ref().map(|a| a.id),
            voice: request.voice.as_ref().map(|voice| voice.sha256.clone()),
            tokens: request.prompt_tokens.clone(),
        };
        if let Some(prefix) = self.prefixes.get(&key) {
            self.prefix_hits += 1;
            metrics::counter!("ppx_prefix_cache_total", "outcome" => "hit").increment(1);
            return Ok(prefix);
        }
        metrics::counter!("ppx_prefix_cache_total", "outcome" => "miss").increment(1);
        let prompt = self.model.prompt(request)?;
        let adapter = match &request.adapter {
            Some(a) => Some(self.adapter(a.id).ok_or(InferenceError::NotLoaded { model: a.id.to_string() })?),
            None => None,
        };
        let prefix = self.model.lm.prefill_with(&prompt, Order::Early, adapter).map_err(failed)?;
        let prefix = Rc::new(prefix);
        self.prefixes.keep(key, &prefix);
        Ok(prefix)
    }

    /// Whether the windows of some conversations are being filled anew.
    pub(super) fn is_refreshing(&self) -> bool {
        self.slots.iter().flatten().any(|slot| slot.refresh.is_some())
    }

    /// One bounded piece of the work on a fresh window; `false` when there is none to do.
    pub(super) fn refresh(&mut self) -> bool {
        let Some(at) = self.slots.iter().position(|s| s.as_ref().is_some_and(|s| s.refresh.is_some())) else {
            return false;
        };
        if let Err(error) = self.advance(at)
            && let Some(slot) = self.remove(at)
        {
            slot.fail(error);
        }
        true
    }

    /// Feeds some rows into a conversation's next window; moves it there when all are in.
    fn advance(&mut self, at: usize) -> Result<(), InferenceError> {
        let slot = self.slots[at].as_mut().ok_or(InferenceError::NoConversation)?;
        let Some(mut refresh) = slot.refresh.take() else { return Ok(()) };
        if !refresh.advance(&self.model.lm, slot.log()).map_err(failed)? {
            slot.refresh = Some(refresh);
            return Ok(());
        }
        let open = self.lm.rows(at).map_err(failed)?.1.to_vec();
        let prefix = refresh.finish(&self.model.lm, &open).map_err(failed)?;
        self.model.lm.open(&mut self.lm, at, &prefix, slot.sampler()).map_err(failed)?;
        slot.moved(prefix.frames());
        slot.notify(Notice::WindowRefreshed { rows: prefix.fed() });
        metrics::counter!("ppx_window_refreshes_total").increment(1);
        Ok(())
    }

    /// Begins fresh windows, finishes those that must be ready now, and announces or makes the end where that is the rule.
    fn watch_windows(&mut self, turns: &mut Vec<Turn>) -> Result<(), InferenceError> {
        for at in turns.iter().map(|turn| turn.slot).collect::<Vec<_>>() {
            let (Some(slot), Ok((fed, _))) = (&mut self.slots[at], self.lm.rows(at)) else { continue };
            let (fed, prompt) = (fed.len(), slot.prefix.fed());
            if slot.refresh.is_none() && self.window.is_due(fed, prompt, slot.waiting_tokens()) {
                slot.refresh = Some(Refresh::begin(&slot.prefix, slot.log(), &self.window));
            }
            match self.window.left(fed) {
                Some(0) => {
                    turns.retain(|turn| turn.slot != at);
                    if let Some(slot) = self.remove(at) {
                        slot.fail(InferenceError::WindowEnded);
                    }
                    continue;
                }
                Some(frames) if slot.announces_end(frames) => slot.notify(Notice::WindowEnds { frames }),
                _ => {}
            }
            while self.window.is_full(self.lm.rows(at).map_err(failed)?.0.len(), prompt) {
                self.advance(at)?;
            }
        }
        Ok(())
    }

    /// Queues an injection of a conversation.
    pub(super) fn inject(&mut self, id: SlotId, item: InjectItem) -> Option<Result<usize, Rejection>> {
        let at = self.find(id)?.0;
        let room = self.window.room(self.lm.rows(at).ok()?.0.len());
        Some(self.slots[at].as_mut()?.inject(item, room))
    }

    /// Rows of a conversation.
    pub(super) fn rows(&self, at: usize, since: usize) -> Result<Rows, InferenceError> {
        let slot = self.slots[at].as_ref().ok_or(InferenceError::NoConversation)?;
        Ok(slot.rows(since, self.lm.rows(at).map_err(failed)?.1))
    }

    /// One frame of every conversation that has a turn; the others are as if there had been no call. Those that cannot
    /// go on are told and taken out.
    pub(super) fn step(&mut self, mut turns: Vec<Turn>) -> Result<(), InferenceError> {
        let started = Instant::now();
        self.refuse_misshapen(&mut turns);
        self.watch_windows(&mut turns)?;
        if turns.is_empty() {
            return Ok(());
        }
        let given = self.listen(&turns)?;
        let emitted = self.model.lm.step(&mut self.lm, &given).map_err(failed)?;
        let waves = self.speak(&turns, &emitted)?;
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
            let ahead = self.lm.decided_text(turn.slot).map_err(failed)?;
            let row = *self.lm.rows(turn.slot).map_err(failed)?.0.last().ok_or_else(not_emitted)?;
            if let Some(slot) = &mut self.slots[turn.slot] {
                slot.observe(emitted, ahead, row);
            }
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
}

/// Rows of an interrupted conversation that are complete; where no row is open, the last one is taken for the one that
/// was being decided.
fn complete(rows: &[Frame]) -> usize {
    let complete = rows.iter().rposition(|row| row.iter().all(|id| *id >= -1)).map_or(0, |last| last + 1);
    if complete == rows.len() { complete.saturating_sub(1) } else { complete }
}

fn no_slot() -> InferenceError {
    InferenceError::Engine("the batch has no free slot".into())
}

fn not_emitted() -> InferenceError {
    InferenceError::Engine("no frame was emitted".into())
}

fn no_host(error: tch::TchError) -> InferenceError {
    InferenceError::Engine(error.to_string())
}

pub(super) fn failed(error: PersonaplexError) -> InferenceError {
    InferenceError::Engine(error.to_string())
}
