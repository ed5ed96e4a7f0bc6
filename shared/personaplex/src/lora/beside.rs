//! Several adapters on one model, each conversation with its own or none: their ranks lie beside each other in one pair of
//! matrices a linear, and a slot of a batch weights those of its adapter with the scaling and all others with zero.

use nn::LoraPair;
use tch::{Device, Kind, Tensor};
use weights::lora::sites;

use super::{Adapter, Trained};
use crate::{Lm, PersonaplexError};

/// Room for ranks grows by multiples of this.
const STEP: i64 = 16;

/// The ranks of one adapter among those beside it. Stands for the adapter until [`Lm::remove_beside`].
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    from: i64,
    ranks: i64,
    scaling: f64,
}

/// The ranks of a model that are given out.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Ranks that the pairs have.
    capacity: i64,
    /// By their first rank.
    taken: Vec<Beside>,
}

impl Shelf {
    /// Whether no adapter lies on it.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// First rank of a gap that is wide enough; it may lie at the end.
    fn gap(&self, ranks: i64) -> i64 {
        let mut from = 0;
        for taken in &self.taken {
            if taken.from - from >= ranks {
                return from;
            }
            from = taken.from + taken.ranks;
        }
        from
    }
}

impl Adapter {
    /// Moves the tensors, so that putting them on a model there takes no time.
    #[must_use]
    pub fn to(mut self, device: Device, kind: Kind) -> Self {
        for tensor in self.tensors.values_mut() {
            *tensor = tensor.to_device(device).to_kind(kind);
        }
        self
    }

    /// Bytes of its tensors.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(|t| t.numel() * t.kind().elt_size_in_bytes()).sum()
    }
}

impl Lm {
    /// Puts an adapter beside those on the model. Only conversations opened for it are changed by it
    /// ([`Lm::prefill_with`]), the others not by a bit. For serving.
    ///
    /// # Errors
    /// When the adapter does not fit the model or brings embedding tables of its own, or the model is being trained.
    pub fn put_beside(&mut self, adapter: &Adapter) -> Result<Beside, PersonaplexError> {
        if self.trained != Trained::Nothing {
            return Err(PersonaplexError::AdapterPresent);
        }
        if adapter.config().embeddings {
            return Err(PersonaplexError::AdapterTables);
        }
        adapter.check(&self.config)?;
        let (ranks, scaling) = (adapter.config().rank, adapter.config().scaling);
        let from = self.shelf.gap(ranks);
        let capacity = self.shelf.capacity.max((from + ranks + STEP - 1) / STEP * STEP);
        let (device, kind) = (self.device, self.kind);
        let theirs = sites(&self.config, adapter.config().skip_depformer).len();
        let sites = sites(&self.config, false);
        let mut changed = capacity != self.shelf.capacity;
        tch::no_grad(|| {
            for (i, (site, slot)) in sites.iter().zip(self.slots()).enumerate() {
                let copies = site.per_step.then_some(site.steps);
                let has = i < theirs;
                if has || slot.is_some() {
                    changed |= slot.is_none();
                    let sizes = (site.inputs, site.outputs);
                    *slot = Some(widened(slot.take(), capacity, || {
                        empty(copies, sizes, capacity, (kind, device))
                    }));
                }
                if let (true, Some(pair)) = (has, slot) {
                    let (mut a, mut b) = adapter.stacked(site);
                    if !site.per_step {
                        (a, b) = (a.squeeze_dim(0), b.squeeze_dim(0));
                    }
                    pair.a.narrow(-2, from, ranks).copy_(&a);
                    pair.b.narrow(-1, from, ranks).copy_(&b);
                }
            }
        });
        let mine = Beside { from, ranks, scaling };
        self.shelf.capacity = capacity;
        self.shelf.taken.push(mine.clone());
        self.shelf.taken.sort_by_key(|b| b.from);
        self.revision += u64::from(changed);
        Ok(mine)
    }

    /// Takes an adapter off; no conversation may be open for it. The last one takes all pairs with it.
    pub fn remove_beside(&mut self, adapter: &Beside) {
        self.shelf.taken.retain(|taken| taken != adapter);
        let none_left = self.shelf.taken.is_empty();
        tch::no_grad(|| {
            for slot in self.slots() {
                match slot {
                    Some(_) if none_left => *slot = None,
                    Some(pair) => {
                        let _ = pair.a.narrow(-2, adapter.from, adapter.ranks).zero_();
                        let _ = pair.b.narrow(-1, adapter.from, adapter.ranks).zero_();
                    }
                    None => {}
                }
            }
        });
        if none_left {
            self.shelf.capacity = 0;
            self.revision += 1;
        }
    }

    /// Weights of all ranks for slots with their adapters, `[B, ranks]`; none when the model has no adapters beside it.
    pub(crate) fn rank_weights(&self, slots: &[Option<&Beside>]) -> Option<Tensor> {
        let capacity = usize::try_from(self.shelf.capacity).ok().filter(|n| *n > 0)?;
        let mut weights = vec![0.0f32; slots.len() * capacity];
        for (row, adapter) in weights.chunks_exact_mut(capacity).zip(slots) {
            if let Some(b) = adapter {
                row[b.from as usize..(b.from + b.ranks) as usize].fill(b.scaling as f32);
            }
        }
        let weights = Tensor::from_slice(&weights).view([slots.len() as i64, capacity as i64]);
        Some(weights.to_device(self.device).to_kind(self.kind))
    }

    /// Runs `work` for conversations with these adapters, one a slot of the batch.
    pub(crate) fn beside<T>(&self, slots: &[Option<&Beside>], work: impl FnOnce() -> T) -> T {
        match self.rank_weights(slots) {
            Some(weights) => nn::with_rank_weights(&weights, work),
            None => work(),
        }
    }
}

/// The pair itself if it has `capacity` ranks, else a fresh one with what it holds.
fn widened(pair: Option<LoraPair>, capacity: i64, fresh: impl FnOnce() -> LoraPair) -> LoraPair {
    let Some(old) = pair else { return fresh() };
    let ranks = old.a.size()[old.a.dim() - 2];
    if ranks == capacity {
        return old;
    }
    let wide = fresh();
    wide.a.narrow(-2, 0, ranks).copy_(&old.a);
    wide.b.narrow(-1, 0, ranks).copy_(&old.b);
    wide
}

/// A pair of `capacity` ranks that changes nothing; `copies` of a per-step linear.
fn empty(
    copies: Option<i64>,
    (inputs, outputs): (i64, i64),
    capacity: i64,
    place: (Kind, Device),
) -> LoraPair {
    let zeros = |rows: i64, columns: i64| match copies {
        Some(steps) => Tensor::zeros([steps, rows, columns], place),
        None => Tensor::zeros([rows, columns], place),
    };
    LoraPair { a: zeros(capacity, inputs), b: zeros(outputs, capacity), scaling: 1.0 }
}
