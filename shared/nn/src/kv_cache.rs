use tch::{Device, Kind, Tensor};

use crate::kernels::Launch;
use crate::{Mask, NnError, Rope, RopeTable, attention, merge_heads, split_rotated};

/// Head width and rows of a part of the attention kernels (`PART` in `cuda/kernels.cu`).
const WIDTH: i64 = 128;
const PART: i64 = 128;

/// Sizes of a ring: `window` rows are visible to a query, itself included; a call brings at most `chunk` rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingShape {
    pub window: i64,
    pub chunk: i64,
}

impl RingShape {
    /// Rows kept, so that the last row of a chunk overwrites nothing that its first query still sees.
    #[must_use]
    pub const fn capacity(self) -> i64 {
        self.window + self.chunk - 1
    }

    /// Rows of memory: the capacity, one scratch row for slots that sit a call out, rounded up for aligned kernels.
    const fn physical(self) -> i64 {
        let rows = self.capacity() + 1;
        if rows < 64 { rows } else { (rows + 63) / 64 * 64 }
    }
}

/// What all layers of one call share: where its rows go and which keys every query sees. Made once per call, from
/// tensors only, so that it can be part of a captured graph.
#[derive(Debug)]
pub struct RingPlan {
    /// Absolute positions of the new rows, `[B, T]`.
    positions: Tensor,
    /// Batch index of every new row, `[B, 1]`.
    slots: Tensor,
    /// Memory row of every new row, `[B, T]`.
    write: Tensor,
    /// `[B, 1, T, len]`, true where a query may look; none when every slot sees all `len` rows.
    mask: Option<Tensor>,
    len: i64,
    /// Rows seen before and whether a slot takes part, `[B]` i64 of one stride: what kernels of our own read.
    counts: Option<(Tensor, Tensor)>,
}

impl RingPlan {
    /// Plans `t` new rows for slots that have seen `start` rows (`[B]` i64) and take part where `active` (`[B]` bool).
    /// `len` memory rows are looked at: at least the largest `start + t`, at most the capacity.
    #[must_use]
    pub fn new(shape: RingShape, start: &Tensor, active: &Tensor, t: i64, len: i64) -> Self {
        let device = start.device();
        let capacity = shape.capacity();
        assert!(t <= shape.chunk && (1..=capacity).contains(&len), "{t} rows, {len} keys for {shape:?}");
        let batch = start.size()[0];
        let positions = start.unsqueeze(1) + Tensor::arange(t, (Kind::Int64, device)); // [B, T]
        let scratch = Tensor::full_like(&positions, capacity);
        let write = positions.remainder(capacity).where_self(&active.unsqueeze(1), &scratch);
        // Memory row j holds the newest position that is j modulo the capacity.
        let last = start.view([batch, 1, 1, 1]) + (t - 1);
        let rows = Tensor::arange(len, (Kind::Int64, device));
        let held = &last - (&last - rows).remainder(capacity); // [B, 1, 1, len]
        let distance = positions.view([batch, 1, t, 1]) - &held;
        let mask = held.ge(0).logical_and(&distance.ge(0)).logical_and(&distance.lt(shape.window));
        let slots = Tensor::arange(batch, (Kind::Int64, device)).unsqueeze(1);
        Self { positions, slots, write, mask: Some(mask), len, counts: None }
    }

    /// As [`RingPlan::new`] for one row per slot, for caches that [`RingCache::attends`]; `seen` and `active` are views
    /// `[B]` i64 of one tensor. A slot looks at its own rows only, whatever `len` is.
    #[must_use]
    pub fn of_counts(seen: &Tensor, active: &Tensor, len: i64) -> Self {
        let nothing = || Tensor::empty([0], (Kind::Int64, seen.device()));
        let counts = Some((seen.shallow_clone(), active.shallow_clone()));
        Self { positions: seen.unsqueeze(1), slots: nothing(), write: nothing(), mask: None, len, counts }
    }

    /// As [`RingPlan::new`] for counts known on the host; looks at no more rows than needed.
    #[must_use]
    pub fn for_slots(shape: RingShape, start: &[i64], active: &[bool], t: i64, device: Device) -> Self {
        let longest = start.iter().zip(active).filter(|(_, active)| **active).map(|(s, _)| s + t).max();
        let len = longest.unwrap_or(t).min(shape.capacity());
        // One row per slot and every slot as far as the longest: nothing to hide.
        let plain = t == 1
            && len <= shape.window
            && start.iter().zip(active).all(|(start, active)| !active || start + 1 >= len);
        let (start, active) = (Tensor::from_slice(start), Tensor::from_slice(active));
        let mut plan = Self::new(shape, &start.to_device(device), &active.to_device(device), t, len);
        if plain {
            plan.mask = None;
        }
        plan
    }

    pub fn mask(&self) -> Mask<'_> {
        self.mask.as_ref().map_or(Mask::All, Mask::Given)
    }

    /// Absolute positions of the new rows, `[B, T]` i64.
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }
}

/// Keys and values of one attention layer for a batch of slots, each with its own position. Position p of a slot lies in
/// memory row `p mod capacity`.
#[derive(Debug)]
pub struct RingCache {
    k: Tensor,
    v: Tensor,
    shape: RingShape,
}

impl RingCache {
    /// An empty ring for `batch` slots.
    pub fn new(batch: i64, heads: i64, shape: RingShape, width: i64, kind: Kind, device: Device) -> Self {
        let empty = || Tensor::zeros([batch, heads, shape.physical(), width], (kind, device));
        Self { k: empty(), v: empty(), shape }
    }

    /// Sizes of the ring.
    #[must_use]
    pub const fn shape(&self) -> RingShape {
        self.shape
    }

    /// Keys as stored, `[B, H, capacity, D]`.
    pub fn keys(&self) -> Tensor {
        self.k.narrow(2, 0, self.shape.capacity())
    }

    /// Adds the rows `[B, H, T, D]` of a plan and returns the keys and values its queries look at, matching its mask.
    /// Rows of slots that sit the call out go where nothing looks.
    pub fn extend(&mut self, plan: &RingPlan, k: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
        for (ring, new) in [(&mut self.k, k), (&mut self.v, v)] {
            let at = [Some(&plan.slots), Some(&plan.write)];
            let _ = ring.transpose(1, 2).index_put_(&at, &new.transpose(1, 2), false);
        }
        (self.k.narrow(2, 0, plan.len), self.v.narrow(2, 0, plan.len))
    }

    /// Whether [`RingCache::attend`] has a kernel for this cache.
    #[must_use]
    pub fn attends(&self) -> bool {
        self.k.size()[3] == WIDTH && self.shape.chunk == 1 && crate::kernels::serve(&self.k)
    }

    /// Adds one row per slot from its projection `[B, 1, 3 * H * D]`, queries and keys rotated to their positions, and gives
    /// what its query sees, `[B, 1, H * D]`. Rows of slots that sit the call out go where nothing looks; what they see is
    /// of no meaning.
    pub fn attend(&mut self, plan: &RingPlan, qkv: &Tensor, rope: &Rope, table: &RopeTable) -> Tensor {
        let (b, heads, rows, width) = self.k.size4().expect("slots, heads, rows, width");
        let Some((seen, active)) = &plan.counts else {
            let (q, k, v) = split_rotated(qkv, heads, table);
            let (k, v) = self.extend(plan, &k, &v);
            return merge_heads(&attention(&q, &k, &v, plan.mask()));
        };
        let (kind, device) = (qkv.kind(), qkv.device());
        let (stride, capacity) = (seen.stride()[0], self.shape.capacity());
        let qkv = qkv.contiguous();
        let q = Tensor::empty([b, heads, width], (kind, device));
        let launch = |name, grid, block, tensors: &[&Tensor], numbers: &[i64]| {
            let real = 1.0 / (width as f64).sqrt();
            Launch { name, grid, block, tensors, numbers, real }.run(kind);
        };
        let tensors = [&qkv, rope.frequencies(), seen, active, &q, &self.k, &self.v];
        launch("rotate_write", [heads, b, 1], width / 2, &tensors, &[stride, heads, width, rows, capacity]);
        let parts = (plan.len.min(capacity) + PART - 1) / PART;
        let sums = Tensor::empty([b, heads, parts, 2], (Kind::Float, device));
        let values = Tensor::empty([b, heads, parts, width], (Kind::Float, device));
        let tensors = [&q, &self.k, &self.v, seen, active, &sums, &values];
        launch("attend_part", [parts, heads, b], width, &tensors, &[stride, heads, rows, capacity]);
        let out = Tensor::empty([b, 1, heads * width], (kind, device));
        let tensors = [&sums, &values, seen, active, &out];
        launch("join_parts", [heads, b, 1], width, &tensors, &[stride, parts, capacity]);
        out
    }

    /// Forgets a slot's rows. Zeroes them: a value left behind that is not finite would poison masked sums.
    pub fn clear(&mut self, slot: i64) {
        let _ = self.k.select(0, slot).zero_();
        let _ = self.v.select(0, slot).zero_();
    }

    /// Writes positions `0..T` of one slot, `[H, T, D]`.
    ///
    /// # Errors
    /// When T is more than the capacity.
    pub fn fill(&mut self, slot: i64, k: &Tensor, v: &Tensor) -> Result<(), NnError> {
        let t = k.size()[1];
        if t > self.shape.capacity() {
            return Err(NnError::RingFull { rows: t, capacity: self.shape.capacity() });
        }
        self.k.select(0, slot).narrow(1, 0, t).copy_(k);
        self.v.select(0, slot).narrow(1, 0, t).copy_(v);
        Ok(())
    }

    /// Copies of the first `n` memory rows of one slot, each `[H, n, D]`.
    pub fn rows(&self, slot: i64, n: i64) -> (Tensor, Tensor) {
        let copy = |ring: &Tensor| ring.select(0, slot).narrow(1, 0, n).copy();
        (copy(&self.k), copy(&self.v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention;

    fn random(size: [i64; 4]) -> Tensor {
        Tensor::randn(size, (Kind::Double, Device::Cpu))
    }

    /// Attention of one query on the last `window` of its slot's own rows.
    fn expected(q: &Tensor, k: &Tensor, v: &Tensor, p: i64, window: i64) -> Tensor {
        let from = (p + 1 - window).max(0);
        let one = |x: &Tensor| x.narrow(2, from, p + 1 - from);
        attention(&q.narrow(2, p, 1), &one(k), &one(v), Mask::All)
    }

    #[test]
    fn slots_at_their_own_positions_see_exactly_their_own_window() {
        let (window, rows) = (5, 23);
        let shape = RingShape { window, chunk: 2 };
        let all: Vec<[Tensor; 3]> =
            (0..3).map(|_| std::array::from_fn(|_| random([1, 2, rows + 2, 4]))).collect();
        let mut cache = RingCache::new(3, 2, shape, 4, Kind::Double, Device::Cpu);
        let mut seen = [0i64; 3];
        for call in 0..30i64 {
            let t = if call % 3 == 0 { 2 } else { 1 };
            // Slot 1 misses every second call, slot 2 joins late and is cleared once.
            let active: [bool; 3] = [true, call % 2 == 0, call >= 4];
            if call == 11 {
                cache.clear(2);
                seen[2] = 0;
            }
            let active: Vec<bool> = (0..3).map(|b| active[b] && seen[b] + t <= rows).collect();
            let plan = RingPlan::for_slots(shape, &seen, &active, t, Device::Cpu);
            let part = |i: usize| {
                let parts: Vec<Tensor> = (0..3).map(|b| all[b][i].narrow(2, seen[b].min(rows), t)).collect();
                Tensor::cat(&parts, 0)
            };
            let (k, v) = cache.extend(&plan, &part(1), &part(2));
            let found = attention(&part(0), &k, &v, plan.mask());
            for b in (0..3).filter(|b| active[*b]) {
                for i in 0..t {
                    let [q, k, v] = &all[b];
                    let wanted = expected(q, k, v, seen[b] + i, window);
                    let found = found.narrow(0, b as i64, 1).narrow(2, i, 1);
                    let error = (found - wanted).abs().max().double_value(&[]);
                    assert!(error < 1e-12, "call {call} slot {b} row {i}: {error:e}");
                }
                seen[b] += t;
            }
        }
    }

    #[test]
    fn filling_more_rows_than_there_are_is_refused() {
        let mut cache = RingCache::new(1, 1, RingShape { window: 3, chunk: 1 }, 2, Kind::Double, Device::Cpu);
        let rows = Tensor::zeros([1, 4, 2], (Kind::Double, Device::Cpu));
        assert!(matches!(cache.fill(0, &rows, &rows), Err(NnError::RingFull { rows: 4, capacity: 3 })));
    }
}
