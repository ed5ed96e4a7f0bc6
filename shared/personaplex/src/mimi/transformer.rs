use nn::{Checkpoint, LayerNorm, Linear, RingCache, RingPlan, Rope, attention, merge_heads, split_qkv};
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

/// Keys and values per layer and the number of steps seen.
pub(super) struct TransformerState {
    caches: Vec<RingCache>,
    seen: Vec<i64>,
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

    pub(super) fn state(&self, batch: i64, device: Device) -> TransformerState {
        let cache = || RingCache::new(batch, self.heads, self.window, self.width, Kind::Float, device);
        TransformerState {
            caches: self.layers.iter().map(|_| cache()).collect(),
            seen: vec![0; batch as usize],
        }
    }

    /// `[B, C, T] -> [B, C, T]`.
    pub(super) fn step(&self, state: &mut TransformerState, x: &Tensor) -> Tensor {
        let mut x = x.transpose(1, 2); // [B, T, C]
        let t = x.size()[1];
        let rope = self.rope.table(&state.seen, t);
        let plan = RingPlan::new(&state.seen, t, self.window, x.device());
        for (layer, cache) in self.layers.iter().zip(&mut state.caches) {
            let (q, k, v) = split_qkv(&layer.in_proj.forward(&layer.norm1.forward(&x)), self.heads);
            let (k, v) = cache.extend(&plan, &rope.rotate(&k), &v);
            let seen = merge_heads(&attention(&rope.rotate(&q), &k, &v, plan.mask()));
            x += layer.out_proj.forward(&seen) * &layer.scale1;
            let inner = layer.linear1.forward(&layer.norm2.forward(&x)).gelu("none");
            x = &x + layer.linear2.forward(&inner) * &layer.scale2;
        }
        state.seen.iter_mut().for_each(|s| *s += t);
        x.transpose(1, 2)
    }
}
