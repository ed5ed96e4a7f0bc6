use crate::{LmConfig, MimiConfig};

/// Name and shape of one tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<i64>,
}

struct Names(Vec<TensorSpec>);

impl Names {
    fn add(&mut self, name: impl Into<String>, shape: &[i64]) {
        self.0.push(TensorSpec { name: name.into(), shape: shape.to_vec() });
    }
}

/// Tensors of `model.safetensors` in the published PersonaPlex spelling (475 for the 7B; personaplex.md 1.2).
/// Linears are `[out, in]`; depformer attention stacks its steps on the first dimension.
pub fn lm_inventory(c: &LmConfig) -> Vec<TensorSpec> {
    let mut n = Names(Vec::new());
    let (dim, dep, steps) = (c.dim, c.depformer_dim, c.dep_q);
    for k in 0..c.n_q {
        n.add(format!("emb.{k}.weight"), &[c.card + 1, dim]);
    }
    n.add("text_emb.weight", &[c.text_card + 1, dim]);
    n.add("text_linear.weight", &[c.text_card, dim]);
    for l in 0..c.num_layers {
        let p = format!("transformer.layers.{l}");
        n.add(format!("{p}.norm1.alpha"), &[1, 1, dim]);
        n.add(format!("{p}.norm2.alpha"), &[1, 1, dim]);
        n.add(format!("{p}.self_attn.in_proj_weight"), &[3 * dim, dim]);
        n.add(format!("{p}.self_attn.out_proj.weight"), &[dim, dim]);
        n.add(format!("{p}.gating.linear_in.weight"), &[2 * c.hidden(), dim]);
        n.add(format!("{p}.gating.linear_out.weight"), &[dim, c.hidden()]);
    }
    n.add("out_norm.alpha", &[1, 1, dim]);
    for s in 0..steps {
        n.add(format!("depformer_in.{s}.weight"), &[dep, dim]);
        n.add(format!("linears.{s}.weight"), &[c.card, dep]);
    }
    n.add("depformer_text_emb.weight", &[c.text_card + 1, dep]);
    for s in 0..steps - 1 {
        n.add(format!("depformer_emb.{s}.weight"), &[c.card + 1, dep]);
    }
    for l in 0..c.depformer_num_layers {
        let p = format!("depformer.layers.{l}");
        n.add(format!("{p}.norm1.alpha"), &[1, 1, dep]);
        n.add(format!("{p}.norm2.alpha"), &[1, 1, dep]);
        n.add(format!("{p}.self_attn.in_proj_weight"), &[steps * 3 * dep, dep]);
        n.add(format!("{p}.self_attn.out_proj.weight"), &[steps * dep, dep]);
        for s in 0..steps {
            n.add(format!("{p}.gating.{s}.linear_in.weight"), &[2 * c.depformer_hidden(), dep]);
            n.add(format!("{p}.gating.{s}.linear_out.weight"), &[dep, c.depformer_hidden()]);
        }
    }
    n.0
}

/// Tensors of `mimi.safetensors` (318 for the published codec; personaplex.md 3.1).
pub fn mimi_inventory(c: &MimiConfig) -> Vec<TensorSpec> {
    let mut n = Names(Vec::new());
    seanet_encoder(&mut n, c);
    seanet_decoder(&mut n, c);
    let d = c.seanet.dimension;
    let k = 2 * c.downsample();
    n.add("downsample.conv.conv.conv.weight", &[d, d, k]);
    n.add("upsample.convtr.convtr.convtr.weight", &[d, 1, k]);
    for side in ["encoder_transformer", "decoder_transformer"] {
        transformer(&mut n, side, c);
    }
    let q = &c.quantizer;
    for (branch, levels) in [("rvq_first", 1), ("rvq_rest", q.n_q - 1)] {
        n.add(format!("quantizer.{branch}.input_proj.weight"), &[q.dimension, d, 1]);
        n.add(format!("quantizer.{branch}.output_proj.weight"), &[d, q.dimension, 1]);
        for level in 0..levels {
            let p = format!("quantizer.{branch}.vq.layers.{level}._codebook");
            n.add(format!("{p}._initialized"), &[1]);
            n.add(format!("{p}.cluster_usage"), &[q.bins]);
            n.add(format!("{p}.embedding_sum"), &[q.bins, q.dimension]);
        }
    }
    n.0
}

fn conv(n: &mut Names, name: &str, shape: [i64; 3]) {
    n.add(format!("{name}.weight"), &shape);
    // Transposed convolutions store [in, out, k]: their bias has the second size.
    let out = if name.contains("convtr") { shape[1] } else { shape[0] };
    n.add(format!("{name}.bias"), &[out]);
}

fn residual(n: &mut Names, name: &str, c: &MimiConfig, channels: i64) {
    let inner = channels / c.seanet.compress;
    conv(n, &format!("{name}.block.1.conv.conv"), [inner, channels, c.seanet.residual_kernel_size]);
    conv(n, &format!("{name}.block.3.conv.conv"), [channels, inner, 1]);
}

fn seanet_encoder(n: &mut Names, c: &MimiConfig) {
    let s = &c.seanet;
    let mut channels = s.n_filters;
    conv(n, "encoder.model.0.conv.conv", [channels, 1, s.kernel_size]);
    let mut index = 1;
    for ratio in s.ratios.iter().rev() {
        residual(n, &format!("encoder.model.{index}"), c, channels);
        conv(n, &format!("encoder.model.{}.conv.conv", index + 2), [2 * channels, channels, 2 * ratio]);
        channels *= 2;
        index += 3;
    }
    conv(n, &format!("encoder.model.{}.conv.conv", index + 1), [s.dimension, channels, s.last_kernel_size]);
}

fn seanet_decoder(n: &mut Names, c: &MimiConfig) {
    let s = &c.seanet;
    let mut channels = s.n_filters << s.ratios.len();
    conv(n, "decoder.model.0.conv.conv", [channels, s.dimension, s.kernel_size]);
    let mut index = 2;
    for ratio in &s.ratios {
        conv(n, &format!("decoder.model.{index}.convtr.convtr"), [channels, channels / 2, 2 * ratio]);
        channels /= 2;
        residual(n, &format!("decoder.model.{}", index + 1), c, channels);
        index += 3;
    }
    conv(n, &format!("decoder.model.{index}.conv.conv"), [1, channels, s.last_kernel_size]);
}

fn transformer(n: &mut Names, side: &str, c: &MimiConfig) {
    let (d, ff) = (c.transformer.d_model, c.transformer.dim_feedforward);
    for l in 0..c.transformer.num_layers {
        let p = format!("{side}.transformer.layers.{l}");
        n.add(format!("{p}.self_attn.in_proj_weight"), &[3 * d, d]);
        n.add(format!("{p}.self_attn.out_proj.weight"), &[d, d]);
        for norm in ["norm1", "norm2"] {
            n.add(format!("{p}.{norm}.weight"), &[d]);
            n.add(format!("{p}.{norm}.bias"), &[d]);
        }
        n.add(format!("{p}.linear1.weight"), &[ff, d]);
        n.add(format!("{p}.linear2.weight"), &[d, ff]);
        n.add(format!("{p}.layer_scale_1.scale"), &[d]);
        n.add(format!("{p}.layer_scale_2.scale"), &[d]);
    }
}
