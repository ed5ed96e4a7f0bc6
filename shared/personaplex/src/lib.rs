//! PersonaPlex and Mimi on libtorch: the 17-stream language model, the codec, generation frame by frame, LoRA, loss.
//!
//! Follows the published PersonaPlex weights and their reference package (NVIDIA/personaplex 3428dfd, built on
//! kyutai-labs/moshi): Moshi (arXiv 2410.00037) with 16 predicted codebooks. Tensor names are the published file's.
//! Implemented: whole forward for training and prefill, streaming generation in the early and in the reference order,
//! given or sampled values per stream, Mimi whole and streaming, LoRA with kyutai's names, merging, the masked loss.
//! Not implemented: voice prompts as embeddings (`.pt`), several sessions in one batch, CUDA graphs, quantisation.
//!
//! A frame is `[i32; 17]`: text, agent codebooks 0..7, user codebooks 0..7. Frame numbers count from the first frame
//! fed; frame i has its text and first codebook in row i + 1 of the model and its delayed codebooks in row i + 2.

mod error;
pub mod generate;
pub mod lm;
pub mod lora;
pub mod loss;
pub mod mimi;
mod sampling;

pub use error::PersonaplexError;
pub use generate::{Emitted, GenOptions, GenState, Given, Order};
pub use lm::{Lm, TrainOutput};
pub use lora::{Adapter, AdapterMeta, LoraConfig, MergeReport, Param, merge_model};
pub use mimi::{DecState, EncState, Mimi};
pub use sampling::{Sampler, Sampling};

/// Text, agent codebooks 0..7, user codebooks 0..7 of one 80 ms frame; the same array as `streams::Frame`.
pub type Frame = [i32; 17];
