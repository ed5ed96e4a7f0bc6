//! Low-rank adapters on a model (finetune.md 5): how they start, which tensors are trained, how they get on and off.
//! Where they sit, their files and merging need no libtorch and are in [`weights::lora`].

mod adapter;
mod beside;
mod inject;

pub use adapter::Adapter;
pub use beside::Beside;
pub(crate) use beside::Shelf;
pub use inject::Param;
pub use weights::lora::{AdapterMeta, LoraConfig};

/// What is trained of a model, or was.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Trained {
    #[default]
    Nothing,
    /// Adapters, and with [`LoraConfig::embeddings`] the embedding tables.
    Adapters(LoraConfig),
    /// Every tensor: full fine-tuning.
    Everything,
}
