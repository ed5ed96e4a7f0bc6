use tch::Kind;

/// What can go wrong outside the arithmetic itself.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    #[error("unknown device {name:?}; use cpu, cuda or cuda:N")]
    UnknownDevice { name: String },
    #[error("device {name:?} was asked for but libtorch sees {found} CUDA devices")]
    NoCuda { name: String, found: i64 },
    #[error("unknown dtype {name:?}; use f32 or bf16")]
    UnknownDtype { name: String },
    #[error("tensor {name:?} has shape {found:?}, not {wanted:?}")]
    Shape { name: String, wanted: Vec<i64>, found: Vec<i64> },
    #[error("tensors of kind {kind:?} are not written to checkpoints")]
    UnsupportedKind { kind: Kind },
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}
