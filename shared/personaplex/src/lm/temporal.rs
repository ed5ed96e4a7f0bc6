use nn::{
    Checkpoint, Linear, Mask, RingCache, RingPlan, RmsNorm, Rope, RopeTable, attention, band_mask,
    merge_heads, split_qkv,
};
use tch::{Kind, Tensor};
use weights::LmConfig;

use super::EPS;
use crate::PersonaplexError;

/// One layer of the temporal transformer (`transformer.layers.{l}`).
pub(crate) struct Layer {
    norm1: RmsNorm,
    pub(crate) in_proj: Linear,
    pub(crate) out_proj: Linear,
    norm2: RmsNorm,
    pub(crate) linear_in: Linear,
    pub(crate) linear_out: Linear,
    heads: i64,
}

/// The temporal transformer and its final norm.
pub(crate) struct Temporal {
    pub(crate) layers: Vec<Layer>,
    out_norm: RmsNorm,
    rope: Rope,
    heads: i64,
    width: i64,
    window: i64,
}

/// What a stream has fed: keys and values per layer, and the number of rows.
pub(crate) struct TemporalState {
    caches: Vec<RingCache>,
    seen: Vec<i64>,
}

impl Layer {
    fn load(file: &Checkpoint, l: i64, heads: i64) -> Result<Self, PersonaplexError> {
        let get = |name: &str| file.get(&format!("transformer.layers.{l}.{name}"));
        Ok(Self {
            norm1: RmsNorm::new(&get("norm1.alpha")?, EPS),
            in_proj: Linear::new(get("self_attn.in_proj_weight")?),
            out_proj: Linear::new(get("self_attn.out_proj.weight")?),
            norm2: RmsNorm::new(&get("norm2.alpha")?, EPS),
            linear_in: Linear::new(get("gating.linear_in.weight")?),
            linear_out: Linear::new(get("gating.linear_out.weight")?),
            heads,
        })
    }

    /// `[B, T, dim] -> [B, T, dim]`; with a cache the keys are the stream's, without one the chunk's own.
    fn forward(
        &self,
        x: &Tensor,
        rope: &RopeTable,
        mask: Mask<'_>,
        cache: Option<(&mut RingCache, &RingPlan)>,
    ) -> Tensor {
        let (q, k, v) = split_qkv(&self.in_proj.forward(&self.norm1.forward(x)), self.heads);
        let (q, k) = (rope.rotate(&q), rope.rotate(&k));
        let seen = match cache {
            None => attention(&q, &k, &v, mask),
            Some((cache, plan)) => {
                let (k, v) = cache.extend(plan, &k, &v);
                attention(&q, &k, &v, mask)
            }
        };
        let x = x + self.out_proj.forward(&merge_heads(&seen));
        let gate = self.linear_in.forward(&self.norm2.forward(&x));
        &x + self.linear_out.forward(&silu_gate(&gate))
    }
}

/// `silu(first half) * second half` of the last dimension.
pub(crate) fn silu_gate(x: &Tensor) -> Tensor {
    let half = x.size().last().expect("not a scalar") / 2;
    x.narrow(-1, 0, half).silu() * x.narrow(-1, half, half)
}

impl Temporal {
    pub(crate) fn load(file: &Checkpoint, c: &LmConfig) -> Result<Self, PersonaplexError> {
        let width = c.dim / c.num_heads;
        Ok(Self {
            layers: (0..c.num_layers).map(|l| Layer::load(file, l, c.num_heads)).collect::<Result<_, _>>()?,
            out_norm: RmsNorm::new(&file.get("out_norm.alpha")?, EPS),
            rope: Rope::new(width, c.max_period, file.device()),
            heads: c.num_heads,
            width,
            window: c.context,
        })
    }

    /// Hidden states of a whole sequence starting at row 0: `[B, T, dim] -> [B, T, dim]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let t = x.size()[1];
        let rope = self.rope.table(&[0], t);
        let band = (t > self.window).then(|| band_mask(t, self.window, x.device()));
        let mask = band.as_ref().map_or(Mask::Causal, Mask::Given);
        let x = self.layers.iter().fold(x.shallow_clone(), |x, layer| layer.forward(&x, &rope, mask, None));
        self.out_norm.forward(&x)
    }

    /// Hidden states of the next rows of a stream.
    pub(crate) fn step(&self, state: &mut TemporalState, x: &Tensor) -> Tensor {
        let t = x.size()[1];
        let rope = self.rope.table(&state.seen, t);
        let plan = RingPlan::new(&state.seen, t, self.window, x.device());
        let mut x = x.shallow_clone();
        for (layer, cache) in self.layers.iter().zip(&mut state.caches) {
            x = layer.forward(&x, &rope, plan.mask(), Some((cache, &plan)));
        }
        state.seen.iter_mut().for_each(|s| *s += t);
        self.out_norm.forward(&x)
    }

    /// An empty stream state for `batch` slots.
    pub(crate) fn state(&self, batch: i64, kind: Kind, device: tch::Device) -> TemporalState {
        let cache = || RingCache::new(batch, self.heads, self.window, self.width, kind, device);
        TemporalState { caches: self.layers.iter().map(|_| cache()).collect(), seen: vec![0; batch as usize] }
    }
}

impl TemporalState {
    /// A copy that shares nothing with this one.
    pub(crate) fn duplicate(&self) -> Self {
        Self { caches: self.caches.iter().map(RingCache::duplicate).collect(), seen: self.seen.clone() }
    }
}
