//! Frozen layers split over the processes of a run (ZeRO, Rajbhandari et al. 2020, for weights that nobody trains): each
//! keeps its part of every layer, and a layer is put together when it is used.

use personaplex::{LayerSource, PersonaplexError};
use ranks::{Group, Shared};
use tch::Tensor;

/// This process's parts, in the order of layers.
#[derive(Debug)]
pub(crate) struct ShardedLayers {
    group: Shared,
    parts: Vec<Tensor>,
}

impl ShardedLayers {
    pub(crate) fn new(group: Shared) -> Self {
        Self { group, parts: Vec::new() }
    }
}

impl LayerSource for ShardedLayers {
    /// The length of `flat` is a multiple of the number of processes.
    fn keep(&mut self, _layer: usize, flat: Tensor) -> Result<(), PersonaplexError> {
        let (rank, world) = (self.group.rank() as i64, self.group.world() as i64);
        let size = flat.size()[0] / world;
        self.parts.push(flat.f_narrow(0, rank * size, size)?.copy());
        Ok(())
    }

    fn fetch(&self, layer: usize, into: &Tensor) -> Result<(), PersonaplexError> {
        let gathered = self.group.gather(&self.parts[layer], into);
        gathered.map_err(|error| PersonaplexError::Layer { layer, detail: error.to_string() })
    }
}
