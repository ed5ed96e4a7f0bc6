use nn::fused::{add_norm, attend_step, gated};
use nn::{Checkpoint, Mask, RmsNorm, StepLinear, attention, silu_gate};
use tch::Tensor;
use weights::LmConfig;

use super::EPS;
use super::table::Table;
use crate::{Param, PersonaplexError};

/// One depformer layer (`depformer.layers.{l}`): norms shared by the steps, every linear per step.
pub(crate) struct Layer {
    norm1: RmsNorm,
    pub(crate) in_proj: StepLinear,
    pub(crate) out_proj: StepLinear,
    norm2: RmsNorm,
    pub(crate) linear_in: StepLinear,
    pub(crate) linear_out: StepLinear,
}

/// The depformer: a causal transformer without positions over the codebooks of one row.
pub(crate) struct Depformer {
    /// `depformer_in.{s}`.
    pub(crate) input: StepLinear,
    pub(crate) text_emb: Table,
    /// `depformer_emb.{j}` embeds codebook j as input of step j + 1.
    pub(crate) audio_emb: Vec<Table>,
    pub(crate) layers: Vec<Layer>,
    /// `linears.{s}`.
    pub(crate) output: StepLinear,
    heads: i64,
    width: i64,
}

/// Keys and values of the steps of one row, one pair `[B, H, steps, D]` a layer; written anew for every row.
struct StepCache {
    k: Tensor,
    v: Tensor,
}

impl Layer {
    fn load(file: &Checkpoint, l: i64, steps: i64, dim: i64) -> Result<Self, PersonaplexError> {
        let name = |rest: &str| format!("depformer.layers.{l}.{rest}");
        let blocks = |rest: &str| Ok::<_, nn::NnError>(file.get(&name(rest))?.view([steps, -1, dim]));
        let gate = |part: &str| file.stack(steps, |s| name(&format!("gating.{s}.{part}.weight")));
        Ok(Self {
            norm1: RmsNorm::new(&file.get(&name("norm1.alpha"))?, EPS),
            in_proj: StepLinear::new(blocks("self_attn.in_proj_weight")?),
            out_proj: StepLinear::new(blocks("self_attn.out_proj.weight")?),
            norm2: RmsNorm::new(&file.get(&name("norm2.alpha"))?, EPS),
            linear_in: StepLinear::new(gate("linear_in")?),
            linear_out: StepLinear::new(gate("linear_out")?),
        })
    }

    /// All steps of all rows at once: `[S, N, d] -> [S, N, d]`.
    fn forward_all(&self, x: &Tensor, heads: i64) -> Tensor {
        let (s, n, d) = x.size3().expect("steps, rows, width");
        let qkv = self.in_proj.forward_all(&self.norm1.forward(x)).view([s, n, 3, heads, d / heads]);
        let qkv = qkv.permute([2, 1, 3, 0, 4]).contiguous(); // [3, N, H, S, D]
        let seen = attention(&qkv.select(0, 0), &qkv.select(0, 1), &qkv.select(0, 2), Mask::Causal);
        let seen = seen.permute([2, 0, 1, 3]).reshape([s, n, d]); // [N, H, S, D] -> [S, N, d]
        let x = x + self.out_proj.forward_all(&seen);
        let gate = self.linear_in.forward_all(&self.norm2.forward(&x));
        &x + self.linear_out.forward_all(&silu_gate(&gate))
    }

    /// One step of one row per slot, added to the running sum `x` `[B, 1, d]` as [`nn::fused::add_norm`] does: `add` is
    /// what the layer before has left to add. Gives what this one leaves. Sees the steps before it and itself.
    fn forward_step(&self, step: i64, x: &mut Tensor, add: Option<&Tensor>, cache: &StepCache) -> Tensor {
        let kind = x.kind();
        let normed = add_norm(x, add, &self.norm1, kind);
        let seen = attend_step(&self.in_proj.forward_step(step, &normed), &cache.k, &cache.v, step);
        let y = self.out_proj.forward_step(step, &seen);
        let normed = add_norm(x, Some(&y), &self.norm2, kind);
        self.linear_out.forward_step(step, &gated(&self.linear_in.forward_step(step, &normed)))
    }
}

impl Depformer {
    pub(crate) fn load(file: &Checkpoint, c: &LmConfig) -> Result<Self, PersonaplexError> {
        let (steps, dim) = (c.dep_q, c.depformer_dim);
        let audio_emb = (0..steps - 1)
            .map(|j| Table::load(file, &format!("depformer_emb.{j}.weight")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            input: StepLinear::new(file.stack(steps, |s| format!("depformer_in.{s}.weight"))?),
            text_emb: Table::load(file, "depformer_text_emb.weight")?,
            audio_emb,
            layers: (0..c.depformer_num_layers)
                .map(|l| Layer::load(file, l, steps, dim))
                .collect::<Result<_, _>>()?,
            output: StepLinear::new(file.stack(steps, |s| format!("linears.{s}.weight"))?),
            heads: c.depformer_num_heads,
            width: dim / c.depformer_num_heads,
        })
    }

    /// Every tensor but the embedding tables, under its published name.
    pub(crate) fn parameters(&self) -> Vec<Param> {
        let mut all = vec![Param::of("depformer_in.*.weight", &self.input.weight)];
        for (l, layer) in self.layers.iter().enumerate() {
            let tensors = [
                ("norm1.alpha", layer.norm1.scale()),
                ("self_attn.in_proj_weight", &layer.in_proj.weight),
                ("self_attn.out_proj.weight", &layer.out_proj.weight),
                ("norm2.alpha", layer.norm2.scale()),
                ("gating.*.linear_in.weight", &layer.linear_in.weight),
                ("gating.*.linear_out.weight", &layer.linear_out.weight),
            ];
            all.extend(tensors.map(|(name, t)| Param::of(format!("depformer.layers.{l}.{name}"), t)));
        }
        all.push(Param::of("linears.*.weight", &self.output.weight));
        all
    }

    /// Logits of every codebook given the rows' own values (teacher forcing): hidden `[N, dim]` and rows `[N, 17]`
    /// give `[S, N, V]`.
    pub(crate) fn forward_all(&self, hidden: &Tensor, rows: &Tensor) -> Tensor {
        let mut inputs = vec![self.text_emb.lookup(&rows.select(1, 0))];
        for (j, table) in self.audio_emb.iter().enumerate() {
            inputs.push(table.lookup(&rows.select(1, 1 + j as i64)));
        }
        let x = self.input.forward_shared(hidden) + Tensor::stack(&inputs, 0);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward_all(&x, self.heads));
        self.output.forward_all(&x)
    }

    /// The first `steps` codebooks of one row per slot, each predicted from those before it. Hidden `[B, 1, dim]` and the
    /// row's text id `[B]`; `choose` turns the logits `[B, V]` of codebook s into the id used, `[B]`, which feeds the next
    /// step.
    pub(crate) fn row(
        &self,
        hidden: &Tensor,
        text: &Tensor,
        steps: i64,
        mut choose: impl FnMut(i64, Tensor) -> Tensor,
    ) {
        let size = [hidden.size()[0], self.heads, steps, self.width];
        let empty = || Tensor::empty(size, (hidden.kind(), hidden.device()));
        let caches: Vec<StepCache> =
            self.layers.iter().map(|_| StepCache { k: empty(), v: empty() }).collect();
        let mut previous = text.shallow_clone();
        for step in 0..steps {
            let table = if step == 0 { &self.text_emb } else { &self.audio_emb[step as usize - 1] };
            let mut x = self.input.forward_step(step, hidden) + table.lookup(&previous.unsqueeze(1));
            let mut add = None;
            for (layer, cache) in self.layers.iter().zip(&caches) {
                add = Some(layer.forward_step(step, &mut x, add.as_ref(), cache));
            }
            if let Some(add) = add {
                x += add;
            }
            previous = choose(step, self.output.forward_step(step, &x).squeeze_dim(1));
        }
    }
}
