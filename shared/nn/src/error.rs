use tch::{Device, Kind};

/// What can go wrong outside the arithmetic itself.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    #[error("unknown device {name:?}; use cpu, cuda or cuda:N")]
    UnknownDevice { name: String },
    #[error("device {name:?} was asked for but libtorch sees {found} CUDA devices")]
    NoCuda { name: String, found: i64 },
    #[error("{what} needs a CUDA device, not {device:?}")]
    NotOnCuda { what: &'static str, device: Device },
    #[error("{what} failed: {message}")]
    Cuda { what: &'static str, message: String },
    #[error("unknown dtype {name:?}; use f32 or bf16")]
    UnknownDtype { name: String },
    #[error("tensor {name:?} has shape {found:?}, not {wanted:?}")]
    Shape { name: String, wanted: Vec<i64>, found: Vec<i64> },
    #[error("tensors of kind {kind:?} are not written to checkpoints")]
    UnsupportedKind { kind: Kind },
    #[error("{rows} rows do not fit a ring of {capacity}")]
    RingFull { rows: i64, capacity: i64 },
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}
