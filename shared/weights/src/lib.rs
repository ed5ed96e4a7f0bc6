//! Model files without libtorch: presets, tensor names and shapes, strict reading, streamed writing, seeded initialisation.
//!
//! A *model directory* holds four files: `model.safetensors` (the 17-stream language model in PersonaPlex's own tensor
//! names, bf16), `mimi.safetensors` (the codec, f32), `tokenizer.model` (SentencePiece) and `config.json`
//! ([`ModelConfig`]). Base models and merged models look the same.
//!
//! Nothing here computes with weights; crates that do (`nn`, `personaplex`) read through [`SafetensorsFile`].

mod canonical;
mod config;
mod convert;
mod dir;
mod dtype;
mod error;
mod header;
mod index;
mod init;
mod inspect;
mod inventory;
pub mod lora;
mod mimi_config;
mod moshi;
mod parallel;
mod preset;
mod reader;
mod report;
mod sniff;
mod source;
mod spelling;
mod tokenizer;
pub mod torch_zip;
mod voice_file;
mod writer;

pub use canonical::{CanonicalReader, Part};
pub use config::{LmConfig, ModelConfig};
pub use convert::{ConvertOptions, ConvertReport, convert};
pub use dir::{CONFIG_FILE, LM_FILE, MIMI_FILE, ModelDir, TOKENIZER_FILE, sha256_file, temporary_beside};
pub use dtype::Dtype;
pub use error::WeightsError;
pub use index::index_path;
pub use init::{InitOptions, init_model, init_model_as, init_model_with};
pub use inspect::{
    CheckpointInfo, FileInfo, ModelInfo, inspect, inspect_checkpoint, verify, verify_checkpoint,
    verify_weights,
};
pub use inventory::{TensorSpec, lm_inventory, mimi_inventory};
pub use mimi_config::{MimiConfig, MimiTransformerConfig, QuantizerConfig, SeanetConfig};
pub use moshi::Adaptation;
pub use parallel::{WriteOptions, write_checkpoint};
pub use preset::{preset_names, preset_tokenizer};
pub use reader::{SafetensorsFile, TensorEntry};
pub use report::NameReport;
pub use sniff::check_downloaded;
pub use source::{CheckpointSource, checkpoint_files, checkpoint_sha256, lm_sha256};
pub use spelling::Spelling;
pub use tokenizer::{check_tokenizer, check_tokenizer_of};
pub use voice_file::{
    RING_ROWS, UNWRITTEN, VOICE_FORMAT, VOICE_STREAMS, VoiceEmbeddings, VoiceFile, VoiceFileError,
};
pub use writer::{SafetensorsWriter, TensorPlan};
