//! What a step of a model does between its matrix products. On the CPU these are compositions of the other building
//! blocks; on CUDA each is one kernel of our own. Only for serving: nothing here carries a gradient.

use tch::{Kind, Tensor};

use crate::kernels::{Launch, serve};
use crate::{Mask, RmsNorm, attention, merge_heads, split_qkv};

/// Adds `y` to the running sum `x` in place (`[B, 1, width]`, where there is one) and gives the norm of the sum in `kind`.
/// The sum may be wider than `y`.
pub fn add_norm(x: &mut Tensor, y: Option<&Tensor>, norm: &RmsNorm, kind: Kind) -> Tensor {
    let widths = (x.kind(), kind);
    let name = match widths {
        (Kind::Float, Kind::BFloat16) => "add_norm_wide",
        (Kind::BFloat16, Kind::BFloat16) => "add_norm_same",
        (Kind::Float, Kind::Float) => "add_norm_full",
        _ => "",
    };
    let width = x.size().last().copied().unwrap_or(1);
    if name.is_empty() || !serve(x) || !x.is_contiguous() {
        if let Some(y) = y {
            *x = &*x + y;
        }
        return norm.forward_as(x, kind);
    }
    let y = y.map(|y| y.to_kind(kind).contiguous());
    let out = x.empty_like().to_kind(kind);
    let alpha = norm.scale().to_kind(x.kind());
    Launch {
        name,
        grid: [x.numel() as i64 / width, 1, 1],
        block: 1_024.min((width + 31) / 32 * 32),
        tensors: &[x, y.as_ref().unwrap_or(&out), &alpha, &out],
        numbers: &[width, i64::from(y.is_some())],
        real: norm.eps(),
    }
    .run_as(name);
    out
}

/// `silu(first half) * second half` of the last dimension; both steps round.
pub fn gated(x: &Tensor) -> Tensor {
    if !serve(x) || !x.is_contiguous() {
        return crate::silu_gate(x);
    }
    let mut size = x.size();
    let half = size.last().copied().expect("not a scalar") / 2;
    *size.last_mut().expect("not a scalar") = half;
    let out = Tensor::empty(&size, (x.kind(), x.device()));
    let total = out.numel() as i64;
    let blocks = ((total + 255) / 256).clamp(1, 1_024);
    let launch = Launch {
        name: "gate",
        grid: [blocks, 1, 1],
        block: 256,
        tensors: &[x, &out],
        numbers: &[half, total],
        real: 0.0,
    };
    launch.run(x.kind());
    out
}

/// Causal attention over the steps of one row per slot: step `step`, `[B, 1, 3 * H * D] -> [B, 1, H * D]`, sees the
/// steps before it and itself. Their keys and values are kept in `k` and `v`, `[B, H, S, D]`.
pub fn attend_step(qkv: &Tensor, k: &Tensor, v: &Tensor, step: i64) -> Tensor {
    let (b, heads, steps, width) = k.size4().expect("slots, heads, steps, width");
    if !serve(qkv) || !qkv.is_contiguous() || width > 128 || width % 32 != 0 || steps > 16 {
        let (q, new_k, new_v) = split_qkv(qkv, heads);
        k.narrow(2, step, 1).copy_(&new_k);
        v.narrow(2, step, 1).copy_(&new_v);
        let seen = |x: &Tensor| x.narrow(2, 0, step + 1);
        return merge_heads(&attention(&q, &seen(k), &seen(v), Mask::All));
    }
    let out = Tensor::empty([b, 1, heads * width], (qkv.kind(), qkv.device()));
    Launch {
        name: "attend_step",
        grid: [heads, b, 1],
        block: width,
        tensors: &[qkv, k, v, &out],
        numbers: &[step, steps, width],
        real: 1.0 / (width as f64).sqrt(),
    }
    .run(qkv.kind());
    out
}

/// Most ids that [`draw`] can look at on CUDA.
const MOST: i64 = 1_024;

/// Draws an id per row of `logits` `[B, V]`: multinomial over the k most likely ids by the exponential race
/// `argmax(p_i / e_i)`, `noise` `[B, k]` ~ Exp(1) for the i-th most likely id. Probabilities are not renormalised, which
/// changes no winner. Where `temperature` `[B, 1]` is zero, the most likely id. `[B]` i64.
pub fn draw(logits: &Tensor, temperature: &Tensor, noise: &Tensor) -> Tensor {
    let (b, vocabulary) = logits.size2().expect("rows by ids");
    let k = noise.size()[1];
    if serve(logits) && logits.is_contiguous() && k <= MOST && noise.stride()[1] == 1 {
        let out = Tensor::empty([b], (Kind::Int64, logits.device()));
        Launch {
            name: "draw",
            grid: [b, 1, 1],
            block: 1_024,
            tensors: &[logits, temperature, noise, &out],
            numbers: &[vocabulary, k, temperature.stride()[0], noise.stride()[0]],
            real: 0.0,
        }
        .run(logits.kind());
        return out;
    }
    let logits = logits.to_kind(Kind::Float);
    let greedy = temperature.le(0.0);
    let temperature = temperature.masked_fill(&greedy, 1.0);
    let probabilities = (&logits / temperature).softmax(-1, Kind::Float);
    let (top, ids) = probabilities.topk(k, -1, true, true);
    let winner = (top / noise).argmax(-1, true);
    let drawn = ids.gather(-1, &winner, false);
    logits.argmax(-1, true).where_self(&greedy, &drawn).squeeze_dim(-1)
}
