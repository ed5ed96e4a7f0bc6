//! Low-rank adapters (finetune.md 5): where they sit, how they start, how they are stored and merged.
//!
//! By default they sit on the temporal transformer and the text head only; adapters in the depformer (and its output
//! heads) were seen to damage the audio.

mod adapter;
mod inject;
mod merge;
mod sites;

pub use adapter::{Adapter, AdapterMeta};
pub use inject::Param;
pub use merge::{MergeReport, merge_file, merge_model};
pub use sites::{Site, sites};

use crate::PersonaplexError;

/// Shape of an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    pub rank: i64,
    /// Constant factor of the update (not alpha / rank).
    pub scaling: f64,
    /// No adapters in `depformer*` and `linears.*`.
    pub skip_depformer: bool,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { rank: 64, scaling: 2.0, skip_depformer: true }
    }
}

impl LoraConfig {
    pub fn validate(&self) -> Result<(), PersonaplexError> {
        if !(1..=256).contains(&self.rank) {
            return Err(PersonaplexError::Rank { rank: self.rank });
        }
        if !(self.scaling > 0.0 && self.scaling.is_finite()) {
            return Err(PersonaplexError::Scaling { scaling: self.scaling });
        }
        Ok(())
    }
}
