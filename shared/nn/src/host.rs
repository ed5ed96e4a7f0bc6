//! Host memory that a GPU reads by itself.

use tch::Tensor;

use crate::{NnError, shim};

/// A copy of a CPU tensor in page-locked memory, from which copies to a GPU run at the full speed of the bus and need not
/// be waited for. libtorch rounds its size up to a power of two. Needs a GPU.
///
/// # Errors
/// When the memory cannot be locked or there is no GPU.
pub fn pinned(tensor: &Tensor) -> Result<Tensor, NnError> {
    shim::pin(tensor)
}

/// Copies `from` into `into` on the current stream without waiting for it, where `from` is [`pinned`] or on the same
/// device. Later work on that stream sees the values; the caller keeps `from` as it is until then.
///
/// # Errors
/// When the shapes differ.
pub fn copy_async(into: &Tensor, from: &Tensor) -> Result<(), NnError> {
    shim::copy_async(into, from)
}
