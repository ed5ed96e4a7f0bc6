//! Model files without libtorch: presets, tensor names and shapes, strict reading, streamed writing, seeded initialisation.
//!
//! A *model directory* holds four files: `model.safetensors` (the 17-stream language model in PersonaPlex's own tensor
//! names, bf16), `mimi.safetensors` (the codec, f32), `tokenizer.model` (SentencePiece) and `config.json`
//! ([`ModelConfig`]). Base models and merged models look the same.
//!
//! Nothing here computes with weights; crates that do (`nn`, `personaplex`) read through [`SafetensorsFile`].

mod config;
mod dir;
mod error;
mod init;
mod inspect;
mod inventory;
mod mimi_config;
mod preset;
mod reader;
mod writer;

pub use config::{LmConfig, ModelConfig};
pub use dir::{CONFIG_FILE, LM_FILE, MIMI_FILE, ModelDir, TOKENIZER_FILE, sha256_file, temporary_beside};
pub use error::WeightsError;
pub use init::{init_model, init_model_with};
pub use inspect::{FileInfo, ModelInfo, inspect, verify};
pub use inventory::{NameReport, TensorSpec, lm_inventory, mimi_inventory};
pub use mimi_config::{MimiConfig, MimiTransformerConfig, QuantizerConfig, SeanetConfig};
pub use preset::{preset_names, preset_tokenizer};
pub use reader::{Dtype, SafetensorsFile, TensorEntry};
pub use writer::{SafetensorsWriter, TensorPlan};
