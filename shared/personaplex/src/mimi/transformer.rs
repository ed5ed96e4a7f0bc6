use nn::{
    Checkpoint, LayerNorm, Linear, RingCache, RingPlan, RingShape, Rope, attention, merge_heads,
    split_rotated,
};
use tch::{Device, Kind, Tensor};
use weights::MimiConfig;

use crate::PersonaplexError;

/// Layer norm epsilon of the published codec.
const EPS: f64 = 1e-5;

struct Layer {
    norm1: LayerNorm,
    in_proj: Linear,
    out_proj: Linear,
    scale1: Tensor,
    norm2: LayerNorm,
    linear1: Linear,
    linear2: Linear,
    scale2: Tensor,
}

/// A transformer on 25 Hz features (`encoder_transformer`, `decoder_transformer`).
pub(super) struct Transformer {
    layers: Vec<Layer>,
    rope: Rope,
    heads: i64,
    width: i64,
    window: i64,
}

/// Keys and values of every layer for a batch of slots. Who owns it counts the steps of each slot.
pub(super) struct TransformerState {
    caches: Vec<RingCache>,
    shape: RingShape,
}

impl TransformerState {
    pub(super) fn shape(&self) -> RingShape {
        self.shape
    }

    pub(super) fn reset(&mut self, slot: i64) {
        self.caches.iter_mut().for_each(|cache| cache.clear(slot));
    }

    /// Copies of what a slot remembers.
    pub(super) fn slot(&self, slot: i64) -> Vec<Tensor> {
        let rows = |cache: &RingCache| <[Tensor; 2]>::from(cache.rows(slot, self.shape.capacity()));
        self.caches.iter().flat_map(rows).collect()
    }
}

impl Layer {
    fn load(file: &Checkpoint, prefix: &str) -> Result<Self, PersonaplexError> {
        let get = |name: &str| file.get(&format!("{prefix}.{name}"));
        let norm = |name: &str| -> Result<LayerNorm, nn::NnError> {
            Ok(LayerNorm::new(get(&format!("{name}.weight"))?, get(&format!("{name}.bias"))?, EPS))
        };
        Ok(Self {
            norm1: norm("norm1")?,
            in_proj: Linear::new(get("self_attn.in_proj_weight")?),
            out_proj: Linear::new(get("self_attn.out_proj.weight")?),
            scale1: get("layer_scale_1.scale")?,
            norm2: norm("norm2")?,
            linear1: Linear::new(get("linear1.weight")?),
            linear2: Linear::new(get("linear2.weight")?),
            scale2: get("layer_scale_2.scale")?,
        })
    }
}

impl Transformer {
    pub(super) fn load(file: &Checkpoint, side: &str, c: &MimiConfig) -> Result<Self, PersonaplexError> {
        let t = &c.transformer;
        let width = t.d_model / t.num_heads;
        Ok(Self {
            layers: (0..t.num_layers)
                .map(|l| Layer::load(file, &format!("{side}.transformer.layers.{l}")))
                .collect::<Result<_, _>>()?,
            rope: Rope::new(width, t.max_period, file.device()),
            heads: t.num_heads,
            width,
            window: t.context,
        })
    }

    /// Rings for calls of up to `chunk` steps. A query sees exactly `context` keys however the steps are grouped: the
    /// ring is longer than the window by what one call overwrites.
    pub(super) fn state(&self, batch: i64, chunk: i64, device: Device) -> TransformerState {
        let shape = RingShape { window: self.window, chunk };
        let cache = || RingCache::new(batch, self.heads, shape, self.width, Kind::Float, device);
        TransformerState { caches: self.layers.iter().map(|_| cache()).collect(), shape }
    }

    /// `[B, C, T] -> [B, C, T]` for the rows of a plan.
    pub(super) fn step(&self, state: &mut TransformerState, plan: &RingPlan, x: &Tensor) -> Tensor {
        let mut x = x.transpose(1, 2); // [B, T, C]
        let rope = self.rope.at(plan.positions());
        for (layer, cache) in self.layers.iter().zip(&mut state.caches) {
            let (q, k, v) =
                split_rotated(&layer.in_proj.forward(&layer.norm1.forward(&x)), self.heads, &rope);
            let (k, v) = cache.extend(plan, &k, &v);
            let seen = merge_heads(&attention(&q, &k, &v, plan.mask()));
            x = &x + layer.out_proj.forward(&seen) * &layer.scale1;
            let inner = layer.linear1.forward(&layer.norm2.forward(&x)).gelu("none");
            x = &x + layer.linear2.forward(&inner) * &layer.scale2;
        }
        x.transpose(1, 2)
    }
}
