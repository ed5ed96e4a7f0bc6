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
    /// Loss or gradient norm is not finite, time and again.
    #[error(
        "{in_a_row} steps in a row were skipped; last: {detail}; lower the learning rate or look at these windows"
    )]
    NotFinite {
        /// What was found where.
        detail: String,
        /// Steps.
        in_a_row: u32,
    },
    /// A grave alarm with `alarms.auto_stop`.
    #[error("alarm {} at step {}: {}; the checkpoint of this step is kept", alarm.code, alarm.step, alarm.detail)]
    Alarm {
        /// The alarm.
        alarm: crate::alarms::Alarm,
    },
    /// The device cannot hold what is to be trained.
    #[error("{0}")]
    Memory(String),
    /// The processes of the run cannot go on together.
    #[error("the processes of the run: {0}")]
    Ranks(#[from] ranks::RanksError),
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
            TrainError::Model(personaplex::PersonaplexError::Layer { .. }) => {
                return Self::transient(ErrorCode::Unavailable, error);
            }
            TrainError::Model(_)
            | TrainError::Weights(_)
            | TrainError::Lora(_)
            | TrainError::Constants { .. } => ErrorCode::InvalidModel,
            TrainError::NotFinite { .. } | TrainError::Alarm { .. } => ErrorCode::TrainingDiverged,
            TrainError::Checkpoint { .. } => ErrorCode::ArtifactDamaged,
            TrainError::Torch(_) => ErrorCode::Internal,
            TrainError::Memory(_) => ErrorCode::InvalidModel,
            TrainError::Io { .. } | TrainError::Ranks(_) => {
                return Self::transient(ErrorCode::Unavailable, error);
            }
        };
        Self::permanent(code, error)
    }
}
