//! PersonaPlex and Mimi on libtorch: the 17-stream language model, the codec, generation frame by frame, LoRA, loss.
//!
//! Follows the published PersonaPlex weights and their reference package (NVIDIA/personaplex 3428dfd, built on
//! kyutai-labs/moshi): Moshi (arXiv 2410.00037) with 16 predicted codebooks. Tensor names are the published file's.
//! Implemented: whole forward for training and prefill, streaming generation of a batch of conversations in the early and
//! in the reference order, given or sampled values per stream, replayed as CUDA graphs, Mimi whole and streaming, LoRA
//! with kyutai's names, the masked loss.
//! Not implemented: quantisation, kernels of our own.
//!
//! A frame is `[i32; 17]`: text, agent codebooks 0..7, user codebooks 0..7. Frame numbers count from the first frame
//! fed; frame i has its text and first codebook in row i + 1 of the model and its delayed codebooks in row i + 2.

mod error;
pub mod generate;
pub mod lm;
pub mod lora;
pub mod loss;
pub mod mimi;
pub mod prompt;
mod sampling;

pub use error::PersonaplexError;
pub use generate::{BatchOptions, Emitted, Given, History, LmBatch, Order, Prefix, Prompt};
pub use lm::{HostLayers, LayerSource, Lm, LossScale, PassOptions, PassSums, TrainOutput};
pub use lora::{Adapter, AdapterMeta, Beside, LoraConfig, Param, Trained};
pub use mimi::{ConstantCheck, ConstantsReport, DecState, DecodeTaps, EncState, EncodeTaps, Mimi};
pub use sampling::{Sampler, Sampling};

/// Text, agent codebooks 0..7, user codebooks 0..7 of one 80 ms frame; the same array as `streams::Frame`.
pub type Frame = [i32; 17];
