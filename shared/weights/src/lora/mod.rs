//! Low-rank adapters as files (finetune.md 5): where they sit, how they are spelled, read strictly, written and merged.
//! Nothing here needs libtorch; `personaplex` puts the same tensors on a running model.
//!
//! An adapter of a linear `W [out, in]` is `A [rank, in]` and `B [out, rank]`; the linear then computes
//! `W x + scaling * B (A x)`. Two directory layouts are read and written ([`Layout`]); inside the program every module
//! has kyutai's name, one per depformer step.

mod config;
mod error;
mod file;
mod merge;
mod meta;
mod names;
mod product;
mod report;
mod save;
mod sites;
mod whole;

pub use config::{KYUTAI_CONFIG_FILE, PEFT_CONFIG_FILE};
pub use error::LoraError;
pub use file::{AdapterFile, KYUTAI_FILE, PEFT_FILE};
pub use merge::{MergeReport, merge_file, merge_model};
pub use meta::AdapterMeta;
pub use report::AdapterReport;
pub use save::{export_adapter, save_adapter};
pub use sites::{Half, Site, adapter_inventory, embedding_tables, sites};
pub use whole::{WholeReport, export_whole, whole_header, whole_meta};

/// Version of the files written here, in their header.
const FORMAT_VERSION: &str = "1";

/// Shape of an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Inner width of every pair.
    pub rank: i64,
    /// Constant factor of the update (not alpha / rank).
    pub scaling: f64,
    /// No adapters in `depformer*` and `linears.*`: there they were seen to damage the audio.
    pub skip_depformer: bool,
    /// The embedding tables are trained as well and belong to the adapter, whole, under their own names.
    pub embeddings: bool,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { rank: 64, scaling: 2.0, skip_depformer: true, embeddings: false }
    }
}

impl LoraConfig {
    /// Ranks 1 to 256 and finite positive scalings are usable.
    pub fn validate(&self) -> Result<(), LoraError> {
        if !(1..=256).contains(&self.rank) {
            return Err(LoraError::Rank { rank: self.rank });
        }
        if !(self.scaling > 0.0 && self.scaling.is_finite()) {
            return Err(LoraError::Scaling { scaling: self.scaling });
        }
        Ok(())
    }
}

/// Layout of an adapter directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `lora.safetensors` with `<module>.lora_A.weight` and a `config.json` of the model's sizes, `lora`, `lora_rank`
    /// and `lora_scaling`: what the reference server loads. That server wants every linear's adapter, so those of a
    /// skipped depformer are written as zeros, and `skip_depformer` in the header says that they are.
    Kyutai,
    /// `adapter_model.safetensors` with `base_model.model.<module>.lora_A.weight` and `adapter_config.json`.
    Peft,
}
