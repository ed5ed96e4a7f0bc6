use nn::fused::{add_norm, gated};
use nn::{
    Checkpoint, Linear, Mask, RingCache, RingPlan, RingShape, RmsNorm, Rope, RopeTable, attention, band_mask,
    merge_heads, silu_gate, split_rotated,
};
use tch::{Device, Kind, Tensor};
use weights::LmConfig;

use super::EPS;
use super::stream::Stream;
use crate::{Param, PersonaplexError};

/// One layer of the temporal transformer (`transformer.layers.{l}`).
pub(crate) struct Layer {
    norm1: RmsNorm,
    pub(crate) in_proj: Linear,
    pub(crate) out_proj: Linear,
    norm2: RmsNorm,
    pub(crate) linear_in: Linear,
    pub(crate) linear_out: Linear,
    heads: i64,
    /// What products are computed in. The sum that runs through the layers may be wider.
    kind: Kind,
}

/// The temporal transformer and its final norm.
pub(crate) struct Temporal {
    pub(crate) layers: Vec<Layer>,
    /// Where the layers' linears come from when they are not resident.
    stream: Option<Stream>,
    out_norm: RmsNorm,
    rope: Rope,
    heads: i64,
    width: i64,
    window: i64,
    kind: Kind,
}

/// Positions and mask of a whole sequence. Up to the window plain causal attention is the same as a band.
pub(crate) struct Whole {
    rope: RopeTable,
    band: Option<Tensor>,
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
            kind: file.kind(),
        })
    }

    /// The linears in the order of their flat tensor ([`super::LayerSource`]).
    fn weights(&self) -> [&Tensor; 4] {
        [&self.in_proj.weight, &self.out_proj.weight, &self.linear_in.weight, &self.linear_out.weight]
    }

    pub(crate) fn weights_mut(&mut self) -> [&mut Tensor; 4] {
        [
            &mut self.in_proj.weight,
            &mut self.out_proj.weight,
            &mut self.linear_in.weight,
            &mut self.linear_out.weight,
        ]
    }

    /// Rotated queries and keys, and values: `[B, T, dim]` to three of `[B, H, T, D]`.
    fn project(&self, x: &Tensor, rope: &RopeTable) -> (Tensor, Tensor, Tensor) {
        split_rotated(&self.in_proj.forward(&self.norm1.forward_as(x, self.kind)), self.heads, rope)
    }

    /// `[B, T, dim] -> [B, T, dim]` of a whole sequence, with its keys and values `[B, H, T, D]`.
    pub(crate) fn forward(&self, x: &Tensor, whole: &Whole) -> (Tensor, Tensor, Tensor) {
        let (q, k, v) = self.project(x, &whole.rope);
        let mask = whole.band.as_ref().map_or(Mask::Causal, Mask::Given);
        (self.finish(x, &attention(&q, &k, &v, mask)), k, v)
    }

    /// One row per slot, added to the running sum `x` as [`nn::fused::add_norm`] does: `add` is what the layer before has
    /// left to add. Gives what this one leaves.
    fn step(&self, x: &mut Tensor, add: Option<&Tensor>, seen: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        let normed = add_norm(x, add, &self.norm1, self.kind);
        let y = self.out_proj.forward(&seen(&self.in_proj.forward(&normed)));
        let normed = add_norm(x, Some(&y), &self.norm2, self.kind);
        self.linear_out.forward(&gated(&self.linear_in.forward(&normed)))
    }

    /// The rest of the layer: what attention saw `[B, H, T, D]`, added to its input, then the gated feed-forward.
    fn finish(&self, x: &Tensor, seen: &Tensor) -> Tensor {
        let x = x + self.out_proj.forward(&merge_heads(seen));
        let gate = self.linear_in.forward(&self.norm2.forward_as(&x, self.kind));
        &x + self.linear_out.forward(&silu_gate(&gate))
    }
}

/// Serving carries the sum that runs through the layers in f32, where training and the reference round it to bf16 twice a
/// layer: a stream and a prefill, whose products add up in different orders, then stay nearer to each other.
fn wide(x: &Tensor) -> Tensor {
    x.to_kind(Kind::Float)
}

impl Temporal {
    /// With a stream no more than one layer's linears are on the device at a time.
    pub(crate) fn load(
        file: &Checkpoint,
        c: &LmConfig,
        mut stream: Option<Stream>,
    ) -> Result<Self, PersonaplexError> {
        let width = c.dim / c.num_heads;
        let mut layers = Vec::new();
        for l in 0..c.num_layers {
            let mut layer = Layer::load(file, l, c.num_heads)?;
            if let Some(stream) = &mut stream {
                stream.adopt(l as usize, &mut layer)?;
            }
            layers.push(layer);
        }
        Ok(Self {
            layers,
            stream,
            out_norm: RmsNorm::new(&file.get("out_norm.alpha")?, EPS),
            rope: Rope::new(width, c.max_period, file.device()),
            heads: c.num_heads,
            width,
            window: c.context,
            kind: file.kind(),
        })
    }

    /// Lets go of resident linears.
    pub(crate) fn stream(&mut self, mut stream: Stream) -> Result<(), PersonaplexError> {
        for (l, layer) in self.layers.iter_mut().enumerate() {
            stream.adopt(l, layer)?;
        }
        self.stream = Some(stream);
        Ok(())
    }

    pub(crate) fn is_streamed(&self) -> bool {
        self.stream.is_some()
    }

    /// A layer whose weights are there, until another is asked for.
    pub(crate) fn layer(&self, l: usize) -> Result<&Layer, PersonaplexError> {
        if let Some(stream) = &self.stream {
            stream.hold(l)?;
        }
        Ok(&self.layers[l])
    }

    /// See [`super::Lm::layer_weights`].
    pub(crate) fn layer_weights(&self, l: usize) -> Result<Vec<Tensor>, PersonaplexError> {
        Ok(self.layer(l)?.weights().into_iter().map(Tensor::shallow_clone).collect())
    }

    /// Every tensor under its published name.
    pub(crate) fn parameters(&self) -> Vec<Param> {
        let mut all = Vec::new();
        for (l, layer) in self.layers.iter().enumerate() {
            let tensors = [
                ("norm1.alpha", layer.norm1.scale()),
                ("self_attn.in_proj_weight", &layer.in_proj.weight),
                ("self_attn.out_proj.weight", &layer.out_proj.weight),
                ("norm2.alpha", layer.norm2.scale()),
                ("gating.linear_in.weight", &layer.linear_in.weight),
                ("gating.linear_out.weight", &layer.linear_out.weight),
            ];
            all.extend(tensors.map(|(name, t)| Param::of(format!("transformer.layers.{l}.{name}"), t)));
        }
        all.push(Param::of("out_norm.alpha", self.out_norm.scale()));
        all
    }

    /// Output of the layers `from..` for a whole sequence, before the final norm: `[B, T, dim] -> [B, T, dim]`.
    pub(crate) fn rest(&self, from: usize, x: &Tensor, whole: &Whole) -> Result<Tensor, PersonaplexError> {
        let mut x = x.shallow_clone();
        for l in from..self.layers.len() {
            x = self.layer(l)?.forward(&x, whole).0;
        }
        Ok(x)
    }

    /// Hidden states of a whole sequence starting at row 0: `[B, T, dim] -> [B, T, dim]`. `keep` is shown the keys and
    /// values `[B, H, T, D]` of every layer in turn.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        mut keep: impl FnMut(Tensor, Tensor),
    ) -> Result<Tensor, PersonaplexError> {
        let whole = self.whole(x.size()[1], x.device());
        let mut x = x.shallow_clone();
        for l in 0..self.layers.len() {
            let (y, k, v) = self.layer(l)?.forward(&x, &whole);
            x = y;
            keep(k, v);
        }
        Ok(self.normed(&x))
    }

    /// As [`Temporal::forward`] with the sums of [`Temporal::step`]: what a stream would have after these rows.
    pub(crate) fn prefill(
        &self,
        x: &Tensor,
        keep: impl FnMut(Tensor, Tensor),
    ) -> Result<Tensor, PersonaplexError> {
        self.forward(&wide(x), keep)
    }

    /// What the layers share when a whole sequence of `t` rows goes through them.
    pub(crate) fn whole(&self, t: i64, device: Device) -> Whole {
        let band = (t > self.window).then(|| band_mask(t, self.window, device));
        Whole { rope: self.rope.whole(t), band }
    }

    /// The final norm.
    pub(crate) fn normed(&self, x: &Tensor) -> Tensor {
        self.out_norm.forward_as(x, self.kind)
    }

    /// Hidden states of the next row of every slot: `[B, 1, dim] -> [B, 1, dim]`, one cache a layer.
    pub(crate) fn step(&self, caches: &mut [RingCache], plan: &RingPlan, x: &Tensor) -> Tensor {
        let table = self.rope.at(plan.positions());
        let mut x = wide(x).contiguous();
        let mut add = None;
        for (layer, cache) in self.layers.iter().zip(caches) {
            let seen = |qkv: &Tensor| cache.attend(plan, qkv, &self.rope, &table);
            add = Some(layer.step(&mut x, add.as_ref(), seen));
        }
        add_norm(&mut x, add.as_ref(), &self.out_norm, self.kind)
    }

    /// Keys and values `[H, T, D]` of every layer grow by those of the rows that follow: `[1, t, dim] -> [1, t, dim]`.
    pub(crate) fn extend(&self, layers: &mut [(Tensor, Tensor)], x: &Tensor) -> Tensor {
        let (start, t) = (layers.first().map_or(0, |(k, _)| k.size()[1]), x.size()[1]);
        let keys = Tensor::arange(start + t, (Kind::Int64, x.device()));
        let positions = keys.narrow(0, start, t);
        let rope = self.rope.at(&positions.unsqueeze(0));
        let distance = positions.unsqueeze(1) - keys.unsqueeze(0);
        let mask = distance.ge(0).logical_and(&distance.lt(self.window)).view([1, 1, t, start + t]);
        let mut x = wide(x);
        for (layer, (keys, values)) in self.layers.iter().zip(layers) {
            let (q, k, v) = layer.project(&x, &rope);
            *keys = Tensor::cat(&[&*keys, &k.squeeze_dim(0)], 1);
            *values = Tensor::cat(&[&*values, &v.squeeze_dim(0)], 1);
            let seen = attention(&q, &keys.unsqueeze(0), &values.unsqueeze(0), Mask::Given(&mask));
            x = layer.finish(&x, &seen);
        }
        self.normed(&x)
    }

    /// Empty caches of `rows` rows for `batch` slots, one a layer.
    pub(crate) fn caches(&self, batch: i64, rows: i64, kind: Kind, device: Device) -> Vec<RingCache> {
        let shape = RingShape { window: rows.clamp(1, self.window), chunk: 1 };
        let cache = |_| RingCache::new(batch, self.heads, shape, self.width, kind, device);
        self.layers.iter().map(cache).collect()
    }
}
