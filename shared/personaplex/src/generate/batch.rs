use nn::RingCache;
use tch::Tensor;

use super::history::{History, UNKNOWN};
use super::inputs::StepInputs;
use super::prefix::Prefix;
use super::replay::{Graphs, bucket};
use super::row::RowOutput;
use crate::lm::ZERO;
use crate::{Beside, Frame, Lm, PersonaplexError, Sampler};

/// Agent codebooks, and so the depformer steps that serving needs.
const AGENT_STEPS: usize = 8;

/// When a row is decided relative to the user frame that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The call that brings user frame i feeds row i + 1, decides row i + 2 and emits frame i.
    #[default]
    Early,
    /// As the published package does it: feeds row i, decides row i + 1 and emits frame i - 1. Same ids, one call later.
    Reference,
}

/// Choices that hold for a whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOptions {
    pub order: Order,
    /// Sample the user's codebooks too where they are not given (self-play): 16 depformer steps instead of 8.
    pub sample_user: bool,
    /// Replay each call as a captured CUDA graph. Only on CUDA.
    pub graphs: bool,
    /// Most ids that a draw looks at, whatever a session's top-k: its share of the batch's memory.
    pub top_k_limit: usize,
    /// Rows that a slot keeps, and so the most that a row sees; at most the model's window, which is the default.
    pub rows: Option<usize>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { order: Order::Early, sample_user: false, graphs: false, top_k_limit: 512, rows: None }
    }
}

/// What is given at one call; everything else is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Given {
    /// User codes of the current frame ([`LmBatch::next_frame`]).
    pub user: Option<[i32; 8]>,
    /// Text id of frame [`LmBatch::forced_frame`].
    pub text: Option<i32>,
    /// Agent codes of frame [`LmBatch::forced_frame`], all eight; delayed here.
    pub agent: Option<[i32; 8]>,
}

/// One finished frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emitted {
    /// Frame number, prompt frames included.
    pub index: usize,
    pub frame: Frame,
}

/// One conversation's place in a batch.
struct Slot {
    history: History,
    sampler: Sampler,
    /// Frames whose user codes (or prompt values) have been taken in.
    frames: usize,
    /// Rows 0..fed have been through the temporal transformer.
    fed: usize,
    adapter: Option<Beside>,
}

/// Weights of the adapters' ranks as the slots have them now.
struct Ranks {
    /// `[B, ranks]`; stays where it is while the model's adapters do, since graphs hold its address.
    weights: Option<Tensor>,
    revision: u64,
    /// A slot was opened since the weights were set.
    stale: bool,
}

/// Conversations that step together: the slots are the batch dimension of one [`Lm`]. Each has its own position, sampler
/// and history; they join and leave at any frame without disturbing the others.
pub struct LmBatch {
    options: BatchOptions,
    slots: Vec<Option<Slot>>,
    caches: Vec<RingCache>,
    inputs: StepInputs,
    /// For the first row of a conversation, which is decided when it is opened.
    first: StepInputs,
    graphs: Graphs,
    ranks: Ranks,
    last: Option<RowOutput>,
}

impl LmBatch {
    /// An empty batch of `slots` slots. Takes the memory of all rows at once (0.5 MiB a row and slot for the 7B).
    ///
    /// # Errors
    /// When graphs are asked for and the model is not on CUDA, or the model's layers are streamed.
    pub fn new(lm: &Lm, slots: usize, options: BatchOptions) -> Result<Self, PersonaplexError> {
        lm.refuse_streamed("generation")?;
        if options.graphs && !lm.device.is_cuda() {
            return Err(nn::NnError::NotOnCuda { what: "a CUDA graph", device: lm.device }.into());
        }
        let c = &lm.config;
        let codebooks = if options.sample_user { c.dep_q as usize } else { AGENT_STEPS };
        let limit = options.top_k_limit.max(1);
        let (text_k, audio_k) = (limit.min(c.text_card as usize), limit.min(c.card as usize));
        let rows = options.rows.map_or(c.context, |rows| rows as i64);
        let inputs = |slots| StepInputs::new(slots, codebooks, text_k, audio_k, lm.device);
        Ok(Self {
            options,
            slots: (0..slots).map(|_| None).collect(),
            caches: lm.temporal.caches(slots as i64, rows, lm.kind, lm.device),
            inputs: inputs(slots),
            first: inputs(1),
            graphs: Graphs::default(),
            ranks: Ranks { weights: None, revision: lm.revision, stale: true },
            last: None,
        })
    }

    /// The first free slot.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }

    /// Rows that a slot keeps: from then on the oldest give way.
    #[must_use]
    pub fn window(&self) -> usize {
        self.caches.first().map_or(0, |cache| cache.shape().window as usize)
    }

    /// Slots, free or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no conversation is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Ends the conversation of a slot; nothing of it reaches the next one.
    pub fn close(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
    }

    /// Number of the frame whose user codes the next call takes; equally the number of frames seen so far.
    ///
    /// # Errors
    /// When the slot is not open.
    pub fn next_frame(&self, slot: usize) -> Result<usize, PersonaplexError> {
        Ok(self.slot(slot)?.frames)
    }

    /// Number of the frame that text and agent values given at the next call belong to.
    ///
    /// # Errors
    /// When the slot is not open.
    pub fn forced_frame(&self, slot: usize) -> Result<usize, PersonaplexError> {
        let ahead = usize::from(self.options.order == Order::Early);
        Ok(self.slot(slot)?.frames + ahead)
    }

    /// Text id of the newest frame whose text is decided: after a call in the early order that is the frame after the
    /// one just emitted, which a scheduler must see before it gives values for the next.
    ///
    /// # Errors
    /// When the slot is not open.
    pub fn decided_text(&self, slot: usize) -> Result<i32, PersonaplexError> {
        let slot = self.slot(slot)?;
        Ok(slot.history.rows()[slot.fed][0])
    }

    /// The rows of a conversation so far.
    ///
    /// # Errors
    /// When the slot is not open.
    pub fn history(&self, slot: usize) -> Result<&History, PersonaplexError> {
        Ok(&self.slot(slot)?.history)
    }

    /// The rows of a conversation that are complete, which are those fed, and what is known of the rows after them.
    ///
    /// # Errors
    /// When the slot is not open.
    pub fn rows(&self, slot: usize) -> Result<(&[Frame], &[Frame]), PersonaplexError> {
        let slot = self.slot(slot)?;
        Ok(slot.history.rows().split_at(slot.fed))
    }

    /// Hidden states `[B, 1, dim]` of the last call; none with graphs.
    #[must_use]
    pub fn hidden(&self) -> Option<&Tensor> {
        self.last.as_ref().map(|out| &out.hidden)
    }

    /// Text logits `[B, V]` of the last call; none with graphs.
    #[must_use]
    pub fn text_logits(&self) -> Option<&Tensor> {
        self.last.as_ref().map(|out| &out.text_logits)
    }

    /// Audio logits of the last call for the codebooks it predicted, `[B, S, V]` f32; none when it predicted none.
    #[must_use]
    pub fn audio_logits(&self) -> Option<Tensor> {
        let logits = &self.last.as_ref()?.audio_logits;
        (!logits.is_empty()).then(|| Tensor::stack(logits, 1).to_kind(tch::Kind::Float))
    }

    fn slot(&self, slot: usize) -> Result<&Slot, PersonaplexError> {
        self.slots.get(slot).and_then(Option::as_ref).ok_or(PersonaplexError::SlotClosed { slot })
    }
}

impl Lm {
    /// Starts a conversation in a slot, whatever was there before. The prefix is copied: it can start others.
    ///
    /// # Errors
    /// When there is no such slot or the prefix was made for another order.
    pub fn open(
        &self,
        batch: &mut LmBatch,
        slot: usize,
        prefix: &Prefix,
        sampler: Sampler,
    ) -> Result<(), PersonaplexError> {
        self.refuse_streamed("generation")?;
        if slot >= batch.slots.len() {
            return Err(PersonaplexError::SlotClosed { slot });
        }
        if prefix.order != batch.options.order {
            return Err(PersonaplexError::OtherOrder);
        }
        let mut state = Slot {
            history: prefix.history.clone(),
            sampler,
            frames: prefix.frames,
            fed: prefix.fed,
            adapter: prefix.adapter.clone(),
        };
        tch::no_grad(|| -> Result<(), PersonaplexError> {
            for cache in &mut batch.caches {
                cache.clear(slot as i64);
            }
            for (cache, (k, v)) in batch.caches.iter_mut().zip(&prefix.layers) {
                cache.fill(slot as i64, k, v)?;
            }
            // In the early order the first frame's text is decided before its user codes are there.
            if let (Order::Early, Some(hidden)) = (prefix.order, &prefix.hidden) {
                let (last, next) = (state.fed - 1, *state.history.row(state.fed));
                batch.first.clear();
                batch.first.set(0, &next, &next, last, &state.sampler);
                batch.first.upload();
                let steps = depformer_steps(&next, batch.options.sample_user);
                let decide = || self.decide_row(&batch.first, hidden, steps as i64);
                let out = self.beside(&[prefix.adapter.as_ref()], decide);
                *state.history.row(state.fed) = host_rows(&out.next)?[0];
            }
            Ok(())
        })?;
        batch.slots[slot] = Some(state);
        batch.ranks.stale = true;
        Ok(())
    }

    /// One 80 ms frame of every slot that is given something; the others are as if there had been no call. `user` are
    /// the codes of frame [`LmBatch::next_frame`]; `text` and `agent` belong to frame [`LmBatch::forced_frame`] (in the
    /// early order the one after). So an injection of N tokens on frames s..s+N-1 starts with the call that brings user
    /// frame s - 1. In the early order every slot that took part emits.
    ///
    /// # Errors
    /// Ids out of range, missing user codes, a closed slot: then nothing has changed.
    pub fn step(
        &self,
        batch: &mut LmBatch,
        given: &[Option<Given>],
    ) -> Result<Vec<Option<Emitted>>, PersonaplexError> {
        if given.len() != batch.slots.len() {
            let (found, wanted) = (given.len(), batch.slots.len());
            return Err(PersonaplexError::SlotCount { found, wanted });
        }
        for (slot, given) in given.iter().enumerate().filter_map(|(b, g)| g.as_ref().map(|g| (b, g))) {
            self.check_given(batch, slot, given)?;
        }
        let _span = tracing::trace_span!("lm.step", slots = given.iter().flatten().count()).entered();
        let order = batch.options.order;
        let (mut steps, mut rows) = (0, 0);
        batch.inputs.clear();
        for (b, (slot, given)) in batch.slots.iter_mut().zip(given).enumerate() {
            let (Some(slot), Some(given)) = (slot, given) else { continue };
            slot.take_in(given, order);
            let (row, next) = (*slot.history.row(slot.fed), *slot.history.row(slot.fed + 1));
            batch.inputs.set(b, &row, &next, slot.fed, &slot.sampler);
            steps = steps.max(depformer_steps(&next, batch.options.sample_user));
            rows = rows.max(slot.fed + 1);
        }
        if rows == 0 {
            return Ok(vec![None; given.len()]);
        }
        batch.inputs.upload();
        batch.weigh(self);
        let next = tch::no_grad(|| match batch.ranks.weights.as_ref().map(Tensor::shallow_clone) {
            Some(weights) => nn::with_rank_weights(&weights, || batch.run(self, rows as i64, steps as i64)),
            None => batch.run(self, rows as i64, steps as i64),
        })?;
        let slots = batch.slots.iter_mut().zip(given).zip(next);
        Ok(slots
            .map(|((slot, given), next)| match (slot, given) {
                (Some(slot), Some(_)) => slot.advance(next, order),
                _ => None,
            })
            .collect())
    }

    fn check_given(&self, batch: &LmBatch, slot: usize, given: &Given) -> Result<(), PersonaplexError> {
        let frame = batch.next_frame(slot)?;
        match &given.user {
            Some(codes) => self.check_ids("user", codes, self.config.card)?,
            None if !batch.options.sample_user => return Err(PersonaplexError::NoUserCodes { frame }),
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

    /// Ids from -1 (nothing) to below `high`.
    pub(crate) fn check_ids(
        &self,
        what: &'static str,
        ids: &[i32],
        high: i64,
    ) -> Result<(), PersonaplexError> {
        match ids.iter().find(|id| **id < ZERO || i64::from(**id) >= high) {
            None => Ok(()),
            Some(id) => {
                Err(PersonaplexError::IdRange { what, value: i64::from(*id), low: i64::from(ZERO), high })
            }
        }
    }
}

impl LmBatch {
    /// Gives every slot the weights of its adapter, in place unless the model's adapters have moved.
    fn weigh(&mut self, lm: &Lm) {
        if !self.ranks.stale && self.ranks.revision == lm.revision {
            return;
        }
        let adapters: Vec<_> =
            self.slots.iter().map(|s| s.as_ref().and_then(|s| s.adapter.as_ref())).collect();
        let fresh = lm.rank_weights(&adapters);
        match (&self.ranks.weights, &fresh) {
            (Some(old), Some(new)) if self.ranks.revision == lm.revision => {
                let mut old = old.shallow_clone();
                tch::no_grad(|| old.copy_(new));
            }
            _ => self.ranks.weights = fresh,
        }
        (self.ranks.stale, self.ranks.revision) = (false, lm.revision);
    }

    /// Feeds what `inputs` holds and returns the next rows.
    fn run(&mut self, lm: &Lm, rows: i64, steps: i64) -> Result<Vec<Frame>, PersonaplexError> {
        if self.options.graphs {
            let steps = if self.options.sample_user { lm.config.dep_q } else { AGENT_STEPS as i64 };
            let out = self.graphs.replay(lm, &mut self.inputs, &mut self.caches, rows, steps)?;
            return host_rows(&out.next);
        }
        let capacity = self.caches[0].shape().capacity();
        let len = match lm.device {
            tch::Device::Cpu => rows.min(capacity),
            _ => bucket(capacity, rows),
        };
        let out = lm.feed_row(&self.inputs, &mut self.caches, len, steps);
        let next = host_rows(&out.next);
        self.last = Some(out);
        next
    }
}

impl Slot {
    /// Writes what was given into the rows.
    fn take_in(&mut self, given: &Given, order: Order) {
        let frame = self.frames;
        let forced = frame + usize::from(order == Order::Early);
        if let Some(codes) = &given.user {
            self.history.give(frame, 1 + AGENT_STEPS, codes);
        }
        if let Some(text) = given.text {
            self.history.give(forced, 0, &[text]);
        }
        if let Some(codes) = &given.agent {
            self.history.give(forced, 1, codes);
        }
    }

    /// Takes the decided row and collects the frame that it completes.
    fn advance(&mut self, next: Frame, order: Order) -> Option<Emitted> {
        self.fed += 1;
        *self.history.row(self.fed) = next;
        let frame = self.frames;
        self.frames += 1;
        let index = match order {
            Order::Early => frame,
            Order::Reference => frame.checked_sub(1)?,
        };
        Some(Emitted { index, frame: self.history.frame(index) })
    }
}

/// Depformer steps that decide a row: those after the last unknown codebook change nothing.
fn depformer_steps(next: &Frame, sample_user: bool) -> usize {
    let limit = if sample_user { 2 * AGENT_STEPS } else { AGENT_STEPS };
    (0..limit).rev().find(|s| next[s + 1] == UNKNOWN).map_or(0, |s| s + 1)
}

/// Rows `[B, 17]` on the host.
fn host_rows(rows: &Tensor) -> Result<Vec<Frame>, PersonaplexError> {
    let flat = Vec::<i64>::try_from(rows.flatten(0, -1).to_device(tch::Device::Cpu))?;
    Ok(flat.chunks_exact(17).map(|row| std::array::from_fn(|k| row[k] as i32)).collect())
}
