//! Why a training could not start or go on.

use std::path::PathBuf;

use chassis::JobError;
use domain::ErrorCode;

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A file of the dataset is missing or malformed.
    #[error("{path}: {detail}")]
    Dataset {
        /// Artifact key.
        path: String,
        /// What was wrong and what was expected.
        detail: String,
    },
    /// No window is left to train on.
    #[error("the dataset has no training window: {0}")]
    Empty(String),
    /// The model could not be read or written.
    #[error(transparent)]
    Model(#[from] personaplex::PersonaplexError),
    /// The model's files could not be read or written.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// The adapter could not be read, written or merged.
    #[error(transparent)]
    Lora(#[from] weights::lora::LoraError),
    /// The codec is not the one that the configuration was made with.
    #[error("the codec gives {found:?} for {signal}, config.json says {configured:?} (strict_constants)")]
    Constants {
        /// Silence or the marker tone.
        signal: &'static str,
        /// What the codec gives.
        found: [i32; 8],
        /// What prompts would use.
        configured: [i32; 8],
    },
    /// libtorch refused.
    #[error("torch: {0}")]
    Torch(#[from] tch::TchError),
    /// A checkpoint lacks something.
    #[error("checkpoint {path:?}: {detail}")]
    Checkpoint {
        /// File.
        path: PathBuf,
        /// What was wrong.
        detail: String,
    },
    /// Loss or gradient norm is not finite.
    #[error("{what} is {value} at step {step}; windows: {windows}")]
    NotFinite {
        /// Loss or gradient norm.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Optimizer update.
        step: u32,
        /// Dialogues of the batch.
        windows: String,
    },
    /// The local disk refused.
    #[error("{path:?}: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The job should stop.
    #[error(transparent)]
    Stopped(#[from] JobError),
}

impl From<TrainError> for JobError {
    fn from(error: TrainError) -> Self {
        let code = match error {
            TrainError::Stopped(stopped) => return stopped,
            TrainError::Dataset { .. } | TrainError::Empty(_) => ErrorCode::InvalidDataset,
            TrainError::Model(_)
            | TrainError::Weights(_)
            | TrainError::Lora(_)
            | TrainError::Constants { .. } => ErrorCode::InvalidModel,
            TrainError::NotFinite { .. } => ErrorCode::TrainingDiverged,
            TrainError::Checkpoint { .. } => ErrorCode::ArtifactDamaged,
            TrainError::Torch(_) => ErrorCode::Internal,
            TrainError::Io { .. } => return Self::transient(ErrorCode::Unavailable, error),
        };
        Self::permanent(code, error)
    }
}
