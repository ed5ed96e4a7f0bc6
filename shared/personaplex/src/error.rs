use std::path::PathBuf;

/// Errors of loading, generating, training inputs and adapters.
#[derive(Debug, thiserror::Error)]
pub enum PersonaplexError {
    #[error(transparent)]
    Nn(#[from] nn::NnError),
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
    #[error("{what} has shape {found:?}, not {wanted}")]
    Shape { what: &'static str, wanted: String, found: Vec<i64> },
    #[error("{what} id {value} is outside {low}..{high}")]
    IdRange { what: &'static str, value: i64, low: i64, high: i64 },
    #[error("{samples} samples are not one frame of {frame}")]
    FrameSize { samples: usize, frame: usize },
    #[error("a prompt can only be fed to a fresh state; this one has seen {frames} frames")]
    NotFresh { frames: usize },
    #[error("user codes of frame {frame} are missing and this state does not sample the user")]
    NoUserCodes { frame: usize },
    #[error("adapter rank {rank} is outside 1..=256")]
    Rank { rank: i64 },
    #[error("adapter scaling {scaling} is not a positive number")]
    Scaling { scaling: f64 },
    #[error("the model already has an adapter")]
    AdapterPresent,
    #[error("the model has no adapter")]
    NoAdapter,
    #[error("{path} is not an adapter configuration: {detail}")]
    AdapterConfig { path: PathBuf, detail: String },
    #[error("the adapter was trained on base {wanted}, this base is {found}")]
    WrongBase { wanted: String, found: String },
    #[error("merging {name}: relative error {error:.2e} is above {limit:.0e}")]
    MergeMismatch { name: String, error: f64, limit: f64 },
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}

impl PersonaplexError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}
