//! Masked, weighted cross entropy (finetune.md 4.1, 4.2). Weights depend on codes and masks alone, so a trainer can sum
//! them over a whole optimiser step before any forward pass and normalise each micro-batch by the global sums.

mod metrics;
mod rows;
mod targets;
mod weights;

use serde::{Deserialize, Serialize};

pub use metrics::LossMetrics;
pub(crate) use rows::target_loss;
pub use rows::{LossSums, masked_loss};
pub(crate) use targets::Targets;
pub use weights::LossWeights;

/// End-of-padding text id: the cue that a word starts.
pub const EPAD: i64 = 0;

/// Which first codebooks the multiplier acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SemanticStreams {
    /// The agent's only.
    Agent,
    /// The agent's and the user's.
    #[default]
    Both,
}

/// Weights of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossSettings {
    /// Weight of text targets that are PAD or EPAD.
    pub text_padding_weight: f64,
    /// Weight of EPAD targets; as padding when absent.
    pub epad_weight: Option<f64>,
    /// Weight of first codebooks relative to the others.
    pub first_codebook_weight_multiplier: f64,
    pub semantic_streams: SemanticStreams,
    /// Weight of the user's codebooks.
    pub user_audio_weight: f64,
}

impl Default for LossSettings {
    fn default() -> Self {
        Self {
            text_padding_weight: 0.03,
            epad_weight: None,
            first_codebook_weight_multiplier: 4.0,
            semantic_streams: SemanticStreams::Both,
            user_audio_weight: 1.0,
        }
    }
}
