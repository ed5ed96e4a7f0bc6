//! Frozen layer weights that are not resident: they lie in one flat tensor a layer somewhere else (host memory, shards on
//! other devices) and are brought into one scratch tensor when the layer is used.

use std::cell::Cell;

use tch::{Device, Kind, Tensor};
use weights::LmConfig;
use weights::lora::sites;

use super::temporal::Layer;
use crate::PersonaplexError;

/// Keeps the frozen linears of the temporal layers and brings them back. A layer's flat tensor is its fused attention
/// input, attention output, gate input and gate output, each `[out, in]` row-major, one after the other, then zeros up
/// to the multiple that [`crate::Lm::stream_layers`] was asked for. Norms and adapters stay on the device.
pub trait LayerSource: Send {
    /// Takes over the flat weights of a layer, on the model's device and in its kind. Called once a layer, in order,
    /// before anything is fetched.
    ///
    /// # Errors
    /// When they cannot be kept; the model is dropped then.
    fn keep(&mut self, layer: usize, flat: Tensor) -> Result<(), PersonaplexError>;

    /// Writes a layer's flat weights into `into`, as kept. What is then computed on the current stream must see them.
    ///
    /// # Errors
    /// When they cannot be brought.
    fn fetch(&self, layer: usize, into: &Tensor) -> Result<(), PersonaplexError>;
}

/// Layers kept in host memory: page-locked when the model is on CUDA, so that copies are fast and queue up with the work
/// that needs them. A layer of the 7B takes 392 MiB of the device's bus and 512 MiB of host memory.
#[derive(Debug, Default)]
pub struct HostLayers {
    layers: Vec<Tensor>,
}

impl LayerSource for HostLayers {
    fn keep(&mut self, _layer: usize, flat: Tensor) -> Result<(), PersonaplexError> {
        let device = flat.device();
        let host = flat.f_to_device(Device::Cpu)?;
        // Pageable memory goes to the device at a fraction of the speed.
        self.layers.push(if device.is_cuda() { nn::host::pinned(&host)? } else { host });
        Ok(())
    }

    fn fetch(&self, layer: usize, into: &Tensor) -> Result<(), PersonaplexError> {
        Ok(nn::host::copy_async(into, &self.layers[layer])?)
    }
}

/// A source and the scratch tensor of which every layer's weights are views.
pub(crate) struct Stream {
    source: Box<dyn LayerSource>,
    scratch: Tensor,
    /// The layer whose weights the scratch holds.
    held: Cell<Option<usize>>,
}

impl Stream {
    /// `multiple` is what the number of elements is rounded up to.
    pub(crate) fn new(
        source: Box<dyn LayerSource>,
        c: &LmConfig,
        multiple: i64,
        place: (Kind, Device),
    ) -> Result<Self, PersonaplexError> {
        let size = layer_elements(c);
        let multiple = multiple.max(1);
        let scratch = Tensor::f_zeros([(size + multiple - 1) / multiple * multiple], place)?;
        Ok(Self { source, scratch, held: Cell::new(None) })
    }

    /// Hands a layer's weights to the source and points the layer into the scratch.
    pub(crate) fn adopt(&mut self, l: usize, layer: &mut Layer) -> Result<(), PersonaplexError> {
        let flat = Tensor::zeros_like(&self.scratch);
        let mut from = 0;
        for weight in layer.weights_mut() {
            let (shape, size) = (weight.size(), weight.numel() as i64);
            flat.f_narrow(0, from, size)?.f_copy_(&weight.f_view(-1)?)?;
            *weight = self.scratch.f_narrow(0, from, size)?.f_view(&shape[..])?;
            from += size;
        }
        self.source.keep(l, flat)
    }

    /// Brings a layer's weights into the scratch unless they are there.
    pub(crate) fn hold(&self, l: usize) -> Result<(), PersonaplexError> {
        if self.held.get() != Some(l) {
            // Half a fetch holds nothing.
            self.held.set(None);
            tch::no_grad(|| self.source.fetch(l, &self.scratch))?;
            self.held.set(Some(l));
        }
        Ok(())
    }
}

/// Elements of a temporal layer's linears: the length of its flat tensor before rounding up.
pub(crate) fn layer_elements(c: &LmConfig) -> i64 {
    // The first sites are the four linears of layer 0; all layers are alike.
    sites(c, true).iter().take(4).map(|site| site.inputs * site.outputs).sum()
}
