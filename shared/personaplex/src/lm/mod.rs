//! The 17-stream language model (personaplex.md 1): temporal transformer over frames, depformer over codebooks.

mod backward;
mod delays;
mod depformer;
mod embed;
mod temporal;
mod train;

use std::path::Path;

use nn::{Checkpoint, Linear};
use tch::{Device, Kind, Tensor};
use weights::{LmConfig, ModelDir, lm_inventory};

use crate::PersonaplexError;
pub use backward::{LossScale, PassOptions, PassSums};
use depformer::Depformer;
use embed::Embeddings;
use temporal::Temporal;
pub use train::TrainOutput;
pub(crate) use train::target_masks;

/// "Nothing here": a zero vector as input, masked as target.
pub const ZERO: i32 = -1;

/// Norm epsilon of the published model.
const EPS: f64 = 1e-8;

/// The language model's weights. They do not change while it runs; adapters are trained through
/// [`Lm::trainable`].
pub struct Lm {
    pub(crate) config: LmConfig,
    pub(crate) device: Device,
    pub(crate) kind: Kind,
    pub(crate) embeddings: Embeddings,
    pub(crate) temporal: Temporal,
    pub(crate) text_linear: Linear,
    pub(crate) depformer: Depformer,
    pub(crate) adapter: Option<crate::LoraConfig>,
    /// Counts changes of the adapters on the model: captured graphs hold their addresses.
    pub(crate) revision: u64,
}

impl Lm {
    /// Loads the language model of a model directory.
    pub fn load(dir: &Path, device: Device, kind: Kind) -> Result<Self, PersonaplexError> {
        let paths = ModelDir::new(dir);
        let config = paths.load_config()?;
        Self::from_file(&paths.lm(), &config.lm, device, kind)
    }

    /// Loads one checkpoint file; it must hold exactly the tensors of `config`.
    pub fn from_file(
        path: &Path,
        config: &LmConfig,
        device: Device,
        kind: Kind,
    ) -> Result<Self, PersonaplexError> {
        config.validate()?;
        let file = Checkpoint::open(path, &lm_inventory(config), device, kind)?;
        Ok(Self {
            embeddings: Embeddings::load(&file, config)?,
            temporal: Temporal::load(&file, config)?,
            text_linear: Linear::new(file.get("text_linear.weight")?),
            depformer: Depformer::load(&file, config)?,
            config: config.clone(),
            device,
            kind,
            adapter: None,
            revision: 0,
        })
    }

    pub fn config(&self) -> &LmConfig {
        &self.config
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Text logits of hidden states: `[.., dim] -> [.., V]`.
    pub(crate) fn text_logits(&self, hidden: &Tensor) -> Tensor {
        self.text_linear.forward(hidden)
    }
}
