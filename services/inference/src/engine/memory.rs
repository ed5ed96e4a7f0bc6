//! What a model will take, reckoned before anything of it is read.

use domain::ModelId;
use tch::{Device, Kind};
use weights::{LmConfig, MimiConfig, ModelDir, lm_inventory, mimi_inventory};

use super::{AdapterSource, ModelSource};
use crate::InferenceError;

/// Encoder and decoder of the codec.
const CODEC_SIDES: i64 = 2;
const F32: i64 = 4;

/// Sizes that the settings choose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Conversations of a model.
    pub(super) slots: usize,
    /// Rows of a conversation; none = the model's window.
    pub(super) rows: Option<usize>,
}

/// Bytes of a model's weights and of the state of its conversations.
pub(super) fn model_bytes(source: &ModelSource, kind: Kind, sizes: &Sizes) -> Result<u64, InferenceError> {
    let failed = |detail: String| InferenceError::Model { model: source.id.to_string(), detail };
    let config = ModelDir::new(&source.dir).load_config().map_err(|e| failed(e.to_string()))?;
    let elements = |shapes: Vec<weights::TensorSpec>| -> i64 {
        shapes.iter().map(|spec| spec.shape.iter().product::<i64>()).sum()
    };
    let width = kind.elt_size_in_bytes() as i64;
    let weights = elements(lm_inventory(&config.lm)) * width + elements(mimi_inventory(&config.mimi)) * F32;
    let slot = lm_slot(&config.lm, sizes.rows) * width + codec_slot(&config.mimi) * F32;
    Ok((weights + slot * sizes.slots as i64).unsigned_abs())
}

/// Keys and values of one conversation, in elements.
fn lm_slot(c: &LmConfig, rows: Option<usize>) -> i64 {
    let rows = rows.map_or(c.context, |rows| (rows as i64).min(c.context));
    // One row to spare, rounded up for the kernels.
    2 * c.num_layers * c.dim * ((rows + 64) / 64 * 64)
}

/// Keys and values of one codec stream, in elements; its other memory is small beside them.
fn codec_slot(c: &MimiConfig) -> i64 {
    let t = &c.transformer;
    CODEC_SIDES * 2 * t.num_layers * t.d_model * t.context
}

/// Bytes of an adapter: its files.
pub(super) fn adapter_bytes(source: &AdapterSource) -> Result<u64, InferenceError> {
    let failed = |e: std::io::Error| InferenceError::Model {
        model: source.id.to_string(),
        detail: format!("its files cannot be read: {e}"),
    };
    let sizes =
        source.files.iter().map(|(name, _)| std::fs::metadata(source.dir.join(name)).map(|m| m.len()));
    sizes.sum::<std::io::Result<u64>>().map_err(failed)
}

/// Bytes that are left beside models that take `taken`; none when nobody knows (a CPU without a limit).
pub(super) fn free(device: Device, limit: Option<u64>, taken: u64) -> Result<Option<u64>, InferenceError> {
    let left = limit.map(|limit| limit.saturating_sub(taken));
    if !device.is_cuda() {
        return Ok(left);
    }
    let stats = nn::graph::memory_stats(device).map_err(|e| InferenceError::Engine(e.to_string()))?;
    // What libtorch holds for itself can be used again.
    let found = stats.free + stats.reserved.saturating_sub(stats.allocated);
    Ok(Some(left.map_or(found, |left| left.min(found))))
}

/// The refusal of what does not fit.
pub(super) fn too_large(model: ModelId, needed: u64, free: u64) -> InferenceError {
    InferenceError::OutOfMemory { model: model.to_string(), needed: needed >> 20, free: free >> 20 }
}
