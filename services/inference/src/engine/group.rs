//! The conversations of one model: they are the slots of one batch and step together.

use std::rc::Rc;

use domain::ModelId;
use personaplex::{
    BatchOptions, Beside, DecState, EncState, Frame, LmBatch, Order, PersonaplexError, Prefix,
};
use streams::inject_queue::{InjectItem, Rejection};
use streams::tokens::PromptCodes;

use super::models::{LoadedAdapter, LoadedModel};
use super::prefixes::{Prefixes, PromptKey};
use super::slot::{Slot, Turn, Wires, sampler};
use super::window::{Chunk, Refresh, Window};
use super::{ModelStatus, Notice, OpenRequest, Rows, SlotId, WindowPolicy};
use crate::InferenceError;

/// A model with the state of its conversations. The slots of the codec and of the language model have the same numbers.
pub(super) struct Group {
    pub(super) model: LoadedModel,
    pub(super) lm: LmBatch,
    pub(super) encoder: EncState,
    pub(super) decoder: DecState,
    pub(super) slots: Vec<Option<Slot>>,
    pub(super) codes: PromptCodes,
    prefixes: Prefixes,
    prefix_hits: u64,
    window: Window,
    chunk: Chunk,
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
            chunk: Chunk::default(),
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
                while !refresh.advance(lm, &rows[..n], &mut self.chunk).map_err(failed)? {}
                let whole = refresh.finish(lm, &rows[n..]).map_err(failed)?;
                lm.open(&mut self.lm, at, &whole, sampler.clone()).map_err(failed)?;
                rows[..n].to_vec()
            }
        };
        self.encoder.reset(at as i64);
        self.decoder.reset(at as i64);
        let prompt_frames = prefix.frames();
        let frames = self.lm.next_frame(at).map_err(failed)?;
        let mut slot = Slot::new(id, request, prefix, (log, frames), sampler, wires);
        slot.set_open(self.lm.rows(at).map_err(failed)?.1);
        self.slots[at] = Some(slot);
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

    /// After a step that failed half-way: every conversation is put together again from what it had come to before. The
    /// codec starts anew for all of them. Those that cannot go on are told.
    pub(super) fn rebuild(&mut self) {
        let slots = self.slots.len() as i64;
        self.encoder = self.model.mimi.new_encoder_batch(slots, 1);
        self.decoder = self.model.mimi.new_decoder_batch(slots, 1);
        for at in 0..self.slots.len() {
            if let Err(error) = self.reopen(at)
                && let Some(slot) = self.remove(at)
            {
                slot.fail(error);
            }
        }
    }

    fn reopen(&mut self, at: usize) -> Result<(), InferenceError> {
        let Some(slot) = &mut self.slots[at] else { return Ok(()) };
        let lm = &self.model.lm;
        let mut refresh = Refresh::resume(&slot.prefix, slot.log(), &self.window);
        while !refresh.advance(lm, slot.log(), &mut self.chunk).map_err(failed)? {}
        let prefix = refresh.finish(lm, slot.open()).map_err(failed)?;
        lm.open(&mut self.lm, at, &prefix, slot.sampler()).map_err(failed)?;
        slot.refresh = None;
        slot.moved(prefix.frames());
        Ok(())
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
        if !refresh.advance(&self.model.lm, slot.log(), &mut self.chunk).map_err(failed)? {
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
    pub(super) fn watch_windows(&mut self, turns: &mut Vec<Turn>) {
        for at in turns.iter().map(|turn| turn.slot).collect::<Vec<_>>() {
            if let Err(error) = self.watch_window(at) {
                turns.retain(|turn| turn.slot != at);
                if let Some(slot) = self.remove(at) {
                    slot.fail(error);
                }
            }
        }
    }

    fn watch_window(&mut self, at: usize) -> Result<(), InferenceError> {
        let (Some(slot), Ok((fed, _))) = (&mut self.slots[at], self.lm.rows(at)) else { return Ok(()) };
        let (fed, prompt) = (fed.len(), slot.prefix.fed());
        if slot.refresh.is_none() && self.window.is_due(fed, prompt, slot.waiting_tokens()) {
            slot.refresh = Some(Refresh::begin(&slot.prefix, slot.log(), &self.window));
        }
        match self.window.left(fed) {
            Some(0) => return Err(InferenceError::WindowEnded),
            Some(frames) if slot.announces_end(frames) => slot.notify(Notice::WindowEnds { frames }),
            _ => {}
        }
        while self.window.is_full(self.lm.rows(at).map_err(failed)?.0.len(), prompt) {
            self.advance(at)?;
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
        Ok(self.slots[at].as_ref().ok_or(InferenceError::NoConversation)?.rows(since))
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

pub(super) fn failed(error: PersonaplexError) -> InferenceError {
    InferenceError::Engine(error.to_string())
}
