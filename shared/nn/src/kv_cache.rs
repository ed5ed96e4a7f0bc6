use tch::{Device, Kind, Tensor};

use crate::Mask;

/// Keys and values of one attention layer: a ring of the last `window` rows per batch slot. Position p lies in slot
/// `p mod window`; a full ring holds exactly the window, the newest row included.
#[derive(Debug)]
pub struct RingCache {
    k: Tensor,
    v: Tensor,
}

/// What all layers of one step share: where rows go and which keys each query may see. Made once per step from the
/// number of rows every batch slot has seen.
#[derive(Debug)]
pub struct RingPlan {
    start: Vec<i64>,
    t: i64,
    window: i64,
    /// All slots have seen equally many rows.
    uniform: bool,
    /// `[B or 1, 1, T, K]`, true where a query may look; none when everything is visible.
    mask: Option<Tensor>,
}

impl RingPlan {
    /// Plans `t` new rows for slots that have seen `start[b]` rows. Several rows at once need equal starts.
    pub fn new(start: &[i64], t: i64, window: i64, device: Device) -> Self {
        let uniform = start.windows(2).all(|w| w[0] == w[1]);
        assert!(uniform || t == 1, "chunks of several rows need slots in lockstep, got starts {start:?}");
        let mask = match (t, uniform) {
            (1, true) => None,
            (1, false) => Some(ragged_mask(start, window, device)),
            _ => Some(chunk_mask(start[0], t, window, device)),
        };
        Self { start: start.to_vec(), t, window, uniform, mask }
    }

    pub fn mask(&self) -> Mask<'_> {
        self.mask.as_ref().map_or(Mask::All, Mask::Given)
    }
}

/// One row per slot at different positions: slot s of the ring is visible when it has been written.
fn ragged_mask(start: &[i64], window: i64, device: Device) -> Tensor {
    let longest = start.iter().max().copied().unwrap_or(0);
    let keys = window.min(longest + 1);
    let filled: Vec<i64> = start.iter().map(|s| window.min(s + 1)).collect();
    let filled = Tensor::from_slice(&filled).to_device(device).view([-1, 1, 1, 1]);
    Tensor::arange(keys, (Kind::Int64, device)).view([1, 1, 1, keys]).lt_tensor(&filled)
}

/// Old rows in position order, then the chunk: `old = min(start, window)` keys before it.
fn chunk_mask(start: i64, t: i64, window: i64, device: Device) -> Tensor {
    let old = start.min(window);
    let keys = Tensor::arange_start(start - old, start + t, (Kind::Int64, device));
    let queries = Tensor::arange_start(start, start + t, (Kind::Int64, device));
    let distance = queries.unsqueeze(1) - keys.unsqueeze(0);
    distance.ge(0).logical_and(&distance.lt(window)).view([1, 1, t, old + t])
}

impl RingCache {
    /// An empty ring for `batch` slots.
    pub fn new(batch: i64, heads: i64, window: i64, width: i64, kind: Kind, device: Device) -> Self {
        let empty = || Tensor::zeros([batch, heads, window, width], (kind, device));
        Self { k: empty(), v: empty() }
    }

    /// Keys as stored, by slot: `[B, H, window, D]`.
    pub fn keys(&self) -> &Tensor {
        &self.k
    }

    /// Adds the rows `[B, H, T, D]` of a plan and returns the keys and values its queries look at, matching its mask.
    pub fn extend(&mut self, plan: &RingPlan, k: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
        if plan.t > 1 {
            return self.extend_chunk(plan, k, v);
        }
        if plan.uniform {
            let slot = plan.start[0] % plan.window;
            self.k.narrow(2, slot, 1).copy_(k);
            self.v.narrow(2, slot, 1).copy_(v);
        } else {
            for (b, start) in plan.start.iter().enumerate() {
                let (b, slot) = (b as i64, start % plan.window);
                self.k.narrow(0, b, 1).narrow(2, slot, 1).copy_(&k.narrow(0, b, 1));
                self.v.narrow(0, b, 1).narrow(2, slot, 1).copy_(&v.narrow(0, b, 1));
            }
        }
        let keys = plan.window.min(plan.start.iter().max().copied().unwrap_or(0) + 1);
        (self.k.narrow(2, 0, keys), self.v.narrow(2, 0, keys))
    }

    /// A chunk may overwrite rows that its first queries still need, so the old rows are taken out first.
    fn extend_chunk(&mut self, plan: &RingPlan, k: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
        let start = plan.start[0];
        let out = [(&mut self.k, k), (&mut self.v, v)].map(|(ring, new)| {
            let all = Tensor::cat(&[in_order(ring, start, plan.window), new.shallow_clone()], 2);
            store_tail(ring, new, start, plan.window);
            all
        });
        let [k, v] = out;
        (k, v)
    }

    /// A copy that shares nothing with this one.
    pub fn duplicate(&self) -> Self {
        Self { k: self.k.copy(), v: self.v.copy() }
    }
}

/// The rows present after `start` rows, oldest first; a copy when the ring has wrapped.
fn in_order(ring: &Tensor, start: i64, window: i64) -> Tensor {
    let split = start % window;
    if start <= window {
        return ring.narrow(2, 0, start);
    }
    if split == 0 {
        return ring.shallow_clone();
    }
    Tensor::cat(&[ring.narrow(2, split, window - split), ring.narrow(2, 0, split)], 2)
}

/// Writes the last `window` of the new rows to their slots.
fn store_tail(ring: &mut Tensor, new: &Tensor, start: i64, window: i64) {
    let t = new.size()[2];
    let kept = t.min(window);
    let mut done = t - kept;
    while done < t {
        let slot = (start + done) % window;
        let run = (window - slot).min(t - done);
        ring.narrow(2, slot, run).copy_(&new.narrow(2, done, run));
        done += run;
    }
}
