use tch::{Device, Kind, Tensor};

use crate::RopeTable;

/// Splits a fused projection into heads: `[B, T, 3*H*D] -> q, k, v` each `[B, H, T, D]`.
pub fn split_qkv(x: &Tensor, heads: i64) -> (Tensor, Tensor, Tensor) {
    let parts = heads_first(x, heads);
    (parts.select(0, 0), parts.select(0, 1), parts.select(0, 2))
}

/// As [`split_qkv`] with queries and keys rotated, both at once.
pub fn split_rotated(x: &Tensor, heads: i64, rope: &RopeTable) -> (Tensor, Tensor, Tensor) {
    let parts = heads_first(x, heads);
    let rotated = rope.rotate(&parts.narrow(0, 0, 2));
    (rotated.select(0, 0), rotated.select(0, 1), parts.select(0, 2))
}

/// `[B, T, 3*H*D] -> [3, B, H, T, D]`.
fn heads_first(x: &Tensor, heads: i64) -> Tensor {
    let (b, t, width) = x.size3().expect("batch, time, width");
    x.view([b, t, 3, heads, width / (3 * heads)]).permute([2, 0, 3, 1, 4])
}

/// `[B, H, T, D] -> [B, T, H*D]`.
pub fn merge_heads(x: &Tensor) -> Tensor {
    let (b, h, t, d) = x.size4().expect("batch, heads, time, width");
    x.transpose(1, 2).reshape([b, t, h * d])
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a> {
    /// All of them.
    All,
    /// Those not after it; queries and keys are the same rows.
    Causal,
    /// Those marked true; broadcastable to `[B, H, T, K]`.
    Given(&'a Tensor),
}

/// Scaled dot-product attention of `[B, H, T, D]` on `[B, H, K, D]`, scale 1/sqrt(D).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask<'_>) -> Tensor {
    let given = if let Mask::Given(mask) = mask { Some(mask) } else { None };
    let causal = matches!(mask, Mask::Causal);
    Tensor::scaled_dot_product_attention(q, k, v, given, 0.0, causal, None, false)
}

/// Mask of a causal window over a whole sequence: query p sees keys j with `0 <= p - j < window`. `[1, 1, T, T]`.
pub fn band_mask(t: i64, window: i64, device: Device) -> Tensor {
    let positions = Tensor::arange(t, (Kind::Int64, device));
    let distance = positions.unsqueeze(1) - positions.unsqueeze(0);
    distance.ge(0).logical_and(&distance.lt(window)).view([1, 1, t, t])
}
