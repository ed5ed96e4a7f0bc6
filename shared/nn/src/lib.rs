//! Building blocks over libtorch: checkpoint reading, linear (with an optional LoRA pair), norms, rotary positions,
//! attention, ring caches, causal convolutions, device choice.
//!
//! Weights never change while a model runs; what a stream remembers is a value owned by the caller ([`RingCache`],
//! [`ConvState`], [`ConvTrState`]). `tch::Tensor` is `Send` but not `Sync`: one thread owns a model and its states.
//! Shape letters in comments: B batch, T time, H heads, D head width, C channels, S depformer steps, V vocabulary.

mod attention;
mod checkpoint;
mod conv;
pub mod device;
mod embedding;
mod error;
pub mod fused;
mod gate;
pub mod graph;
pub mod host;
mod kernels;
mod kv_cache;
mod linear;
mod norm;
mod rope;
mod shim;

pub use attention::{Mask, attention, band_mask, merge_heads, split_qkv, split_rotated};
pub use checkpoint::{Checkpoint, dtype_of, kind_of, tensor_bytes, tensor_from_file};
pub use conv::{CausalConv, CausalConvTr, ConvState, ConvTrState, Padding};
pub use embedding::lookup;
pub use error::NnError;
pub use gate::silu_gate;
pub use graph::CudaGraph;
pub use kv_cache::{RingCache, RingPlan, RingShape};
pub use linear::{Linear, LoraPair, StepLinear, adapters_off, with_rank_weights, without_adapters};
pub use norm::{LayerNorm, RmsNorm};
pub use rope::{Rope, RopeTable};
