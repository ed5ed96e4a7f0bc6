use std::path::PathBuf;

use super::AdapterReport;
use crate::WeightsError;

/// What can be wrong with an adapter or its merge.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("adapter rank {rank} is outside 1..=256")]
    Rank { rank: i64 },
    #[error("adapter scaling {scaling} is not a positive number")]
    Scaling { scaling: f64 },
    #[error("{path} is not an adapter configuration: {detail}")]
    Config { path: PathBuf, detail: String },
    #[error("{path} is not an adapter directory: it holds {found}")]
    Layout { path: PathBuf, found: String },
    #[error("{path} is not an adapter of this model: {report}")]
    Adapter { path: PathBuf, report: Box<AdapterReport> },
    #[error("it was trained on base {wanted}, this base is {found}")]
    WrongBase { wanted: String, found: String },
    #[error("{path} is no checkpoint of full fine-tuning: its header does not say so")]
    NotTrained { path: PathBuf },
    #[error("merging {name}: relative error {error:.2e} is above {limit:.0e}")]
    MergeMismatch { name: String, error: f64, limit: f64 },
}
