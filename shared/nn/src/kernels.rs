//! Kernels of our own (`cuda/kernels.cu`), compiled for the device when they are first used.
//!
//! Whether they are used is decided by device and shape alone, so that a captured graph and eager execution run the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use crate::{NnError, shim};

const SOURCE: &str = include_str!("../cuda/kernels.cu");

/// The kernels of every device that has used them.
static LOADED: Mutex<Option<HashMap<usize, &'static shim::Kernels>>> = Mutex::new(None);

fn on(device: usize) -> Result<&'static shim::Kernels, NnError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    if let Some(kernels) = loaded.get(&device) {
        return Ok(kernels);
    }
    // They stay for the life of the process, as libtorch's own do.
    let kernels: &'static _ = Box::leak(Box::new(shim::Kernels::load(device as i32, SOURCE)?));
    loaded.insert(device, kernels);
    Ok(kernels)
}

/// One launch: `tensors` are contiguous unless the kernel takes a stride, and all on one device.
pub(crate) struct Launch<'a> {
    pub(crate) name: &'a str,
    pub(crate) grid: [i64; 3],
    pub(crate) block: i64,
    pub(crate) tensors: &'a [&'a Tensor],
    pub(crate) numbers: &'a [i64],
    pub(crate) real: f64,
}

impl Launch<'_> {
    /// Queues the kernel of this name for the kind, `name_bf16` or `name_f32`.
    ///
    /// # Panics
    /// When it cannot be launched, as libtorch's operators do.
    pub(crate) fn run(&self, kind: Kind) {
        let suffix = if kind == Kind::BFloat16 { "bf16" } else { "f32" };
        self.run_as(&format!("{}_{suffix}", self.name));
    }

    /// Queues the kernel of exactly this name.
    pub(crate) fn run_as(&self, name: &str) {
        let Device::Cuda(device) = self.tensors[0].device() else { panic!("{name} runs on CUDA only") };
        let launched = on(device).and_then(|k| {
            k.launch(name, self.grid, self.block, self.tensors, self.numbers, self.real as f32)
        });
        if let Err(error) = launched {
            panic!("{error}");
        }
    }
}

/// Whether tensors of this kind on this device go through kernels of our own. Not where gradients are wanted.
pub(crate) fn serve(x: &Tensor) -> bool {
    x.device().is_cuda() && matches!(x.kind(), Kind::BFloat16 | Kind::Float) && !x.requires_grad()
}
