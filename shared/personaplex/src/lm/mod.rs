//! The 17-stream language model (personaplex.md 1): temporal transformer over frames, depformer over codebooks.

mod backward;
mod delays;
mod depformer;
mod embed;
mod stream;
mod table;
mod temporal;
mod train;
mod whole;

use std::path::Path;

use nn::{Checkpoint, Linear};
use tch::{Device, Kind, Tensor};
use weights::{LmConfig, ModelDir, lm_inventory};

use crate::PersonaplexError;
use crate::lora::{Shelf, Trained};
pub use backward::{LossScale, PassOptions, PassSums};
use depformer::Depformer;
use embed::Embeddings;
use stream::Stream;
pub use stream::{HostLayers, LayerSource};
use table::Table;
use temporal::Temporal;
pub use train::TrainOutput;
pub(crate) use train::target_masks;

/// "Nothing here": a zero vector as input, masked as target.
pub const ZERO: i32 = -1;

/// Norm epsilon of the published model.
const EPS: f64 = 1e-8;

/// The language model's weights. They do not change while it runs; what is trained of them, or beside them, is changed
/// through [`Lm::trainable`].
pub struct Lm {
    pub(crate) config: LmConfig,
    pub(crate) device: Device,
    pub(crate) kind: Kind,
    pub(crate) embeddings: Embeddings,
    pub(crate) temporal: Temporal,
    pub(crate) text_linear: Linear,
    pub(crate) depformer: Depformer,
    pub(crate) trained: Trained,
    /// Adapters beside each other, for serving.
    pub(crate) shelf: Shelf,
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
        Self::read(path, config, (device, kind), None)
    }

    /// As [`Lm::load`], streamed: see [`Lm::from_file_streamed`].
    ///
    /// # Errors
    /// As [`Lm::load`], and what the source reports.
    pub fn load_streamed(
        dir: &Path,
        place: (Device, Kind),
        source: Box<dyn LayerSource>,
        multiple: i64,
    ) -> Result<Self, PersonaplexError> {
        let paths = ModelDir::new(dir);
        let config = paths.load_config()?;
        Self::from_file_streamed(&paths.lm(), &config.lm, place, source, multiple)
    }

    /// As [`Lm::from_file`] for a model whose layers do not fit on the device: each goes to the source as soon as it is
    /// read. See [`Lm::stream_layers`].
    ///
    /// # Errors
    /// As [`Lm::from_file`], and what the source reports.
    pub fn from_file_streamed(
        path: &Path,
        config: &LmConfig,
        (device, kind): (Device, Kind),
        source: Box<dyn LayerSource>,
        multiple: i64,
    ) -> Result<Self, PersonaplexError> {
        Self::read(path, config, (device, kind), Some((source, multiple)))
    }

    fn read(
        path: &Path,
        config: &LmConfig,
        (device, kind): (Device, Kind),
        streamed: Option<(Box<dyn LayerSource>, i64)>,
    ) -> Result<Self, PersonaplexError> {
        config.validate()?;
        let file = Checkpoint::open(path, &lm_inventory(config), device, kind)?;
        let stream =
            streamed.map(|(source, n)| Stream::new(source, config, n, (kind, device))).transpose()?;
        Ok(Self {
            embeddings: Embeddings::load(&file, config)?,
            temporal: Temporal::load(&file, config, stream)?,
            text_linear: Linear::new(file.get("text_linear.weight")?),
            depformer: Depformer::load(&file, config)?,
            config: config.clone(),
            device,
            kind,
            trained: Trained::Nothing,
            shelf: Shelf::default(),
            revision: 0,
        })
    }

    /// Moves the frozen linears of the temporal layers to `source`: from now on they are views of one scratch tensor of
    /// one layer's size, into which a layer is fetched whenever it is used. [`Lm::backward`] then fetches every layer
    /// twice a pass (the last one once) and needs full recomputation. The flat size is rounded up to `multiple`.
    ///
    /// # Errors
    /// When every tensor is trained, the layers are streamed already, or the source fails.
    pub fn stream_layers(
        mut self,
        source: Box<dyn LayerSource>,
        multiple: i64,
    ) -> Result<Self, PersonaplexError> {
        self.refuse_streamed("streaming the layers again")?;
        if self.trained == Trained::Everything {
            return Err(PersonaplexError::WholeModel { what: "streaming the layers" });
        }
        let place = (self.kind, self.device);
        self.temporal.stream(Stream::new(source, &self.config, multiple, place)?)?;
        self.revision += 1;
        Ok(self)
    }

    /// Elements of a temporal layer's flat weights, before rounding up.
    pub fn layer_elements(&self) -> i64 {
        stream::layer_elements(&self.config)
    }

    /// The base's linears of one temporal layer in the order of its flat tensor ([`LayerSource`]), not copied. Of a
    /// streamed layer they hold until another layer is used.
    ///
    /// # Errors
    /// What the source of streamed layers reports.
    pub fn layer_weights(&self, layer: usize) -> Result<Vec<Tensor>, PersonaplexError> {
        self.temporal.layer_weights(layer)
    }

    pub(crate) fn refuse_streamed(&self, what: &'static str) -> Result<(), PersonaplexError> {
        if self.temporal.is_streamed() { Err(PersonaplexError::Streamed { what }) } else { Ok(()) }
    }

    /// The embedding tables by name, in the order of [`weights::lora::embedding_tables`].
    pub(crate) fn tables(&self) -> Vec<(String, &Table)> {
        let (e, d) = (&self.embeddings, &self.depformer);
        let audio = e.audio.iter().enumerate().map(|(k, t)| (format!("emb.{k}.weight"), t));
        let codebooks = d.audio_emb.iter().enumerate();
        audio
            .chain([("text_emb.weight".into(), &e.text), ("depformer_text_emb.weight".into(), &d.text_emb)])
            .chain(codebooks.map(|(j, t)| (format!("depformer_emb.{j}.weight"), t)))
            .collect()
    }

    /// As [`Lm::tables`], without names.
    pub(crate) fn tables_mut(&mut self) -> Vec<&mut Table> {
        let (e, d) = (&mut self.embeddings, &mut self.depformer);
        let texts = [&mut e.text, &mut d.text_emb];
        e.audio.iter_mut().chain(texts).chain(&mut d.audio_emb).collect()
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
