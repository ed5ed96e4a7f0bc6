//! CUDA graphs: a fixed sequence of kernels, recorded once and launched as one; and what a device's memory holds.
//!
//! A graph replays the same kernels on the same addresses. So whatever it reads and writes (inputs, positions, caches,
//! outputs) is a tensor that outlives the graph and is changed in place (`copy_`), and the recorded work may not look at
//! values on the host, allocate on the host, or depend on sizes that change.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tch::{Cuda, Device};

use crate::{NnError, shim};

/// Work recorded on a CUDA device. Can be moved to another thread but used by one at a time.
#[derive(Debug)]
pub struct CudaGraph {
    raw: shim::Graph,
    device: Device,
}

/// Bytes that libtorch holds on a device, since the start or since [`reset_peak`]. What CUDA itself takes (some hundred
/// MiB) comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// In tensors.
    pub allocated: u64,
    pub allocated_peak: u64,
    /// Taken from the device, in use or cached.
    pub reserved: u64,
    pub reserved_peak: u64,
    /// Left on the device, whoever holds the rest.
    pub free: u64,
    /// The device's memory.
    pub total: u64,
}

impl CudaGraph {
    /// Records what `work` launches, without running it: results appear with the first [`CudaGraph::replay`].
    ///
    /// The caller has run `work` at least once before (libraries initialise at first use, which cannot be recorded).
    /// Tensors made and dropped inside live in the graph's own memory. `pool`: take that memory from another graph's;
    /// then a replay of either overwrites the results that the other left in that memory, so copy them out first.
    /// Captures of several threads follow each other. Fails on the CPU, where libtorch has no CUDA, and when `work` did
    /// something that cannot be recorded. A panic in `work` goes on after the recording was abandoned.
    pub fn capture(
        device: Device,
        pool: Option<&CudaGraph>,
        work: impl FnOnce(),
    ) -> Result<CudaGraph, NnError> {
        let index = cuda_index("a CUDA graph", device)?;
        let raw = shim::Graph::begin(index, pool.map(|graph| &graph.raw))?;
        // In a panic the closure's captures may be half changed, which is no matter: the panic goes on.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            raw.abandon();
            resume_unwind(panic);
        }
        let graph = Self { raw, device };
        graph.raw.end()?;
        Ok(graph)
    }

    /// Launches the recorded work on the current stream and returns at once; later work on that stream waits for it.
    pub fn replay(&self) -> Result<(), NnError> {
        self.raw.replay()
    }

    pub fn device(&self) -> Device {
        self.device
    }
}

impl Drop for CudaGraph {
    /// Waits for a running replay.
    fn drop(&mut self) {
        self.raw.free();
    }
}

/// Waits until the device has done everything asked of it; errors of earlier kernels surface here. On the CPU nothing is
/// ever outstanding.
pub fn synchronize(device: Device) -> Result<(), NnError> {
    match device {
        Device::Cpu => Ok(()),
        device => shim::synchronize(cuda_index("waiting for a device", device)?),
    }
}

/// What libtorch holds on a CUDA device.
pub fn memory_stats(device: Device) -> Result<MemoryStats, NnError> {
    shim::memory(cuda_index("memory figures", device)?)
}

/// Lets the peaks of [`memory_stats`] start again from the present.
pub fn reset_peak(device: Device) -> Result<(), NnError> {
    shim::reset_peak(cuda_index("memory figures", device)?)
}

/// Gives cached memory that no tensor uses back to the device.
pub fn empty_cache(device: Device) -> Result<(), NnError> {
    shim::empty_cache(cuda_index("emptying the cache", device)?)
}

/// The product name of a CUDA device.
pub fn device_name(device: Device) -> Result<String, NnError> {
    shim::name(cuda_index("a device name", device)?)
}

/// The number of a CUDA device that exists.
fn cuda_index(what: &'static str, device: Device) -> Result<i32, NnError> {
    let Device::Cuda(index) = device else {
        return Err(NnError::NotOnCuda { what, device });
    };
    let found = if Cuda::is_available() { Cuda::device_count() } else { 0 };
    if (index as i64) < found {
        Ok(index as i32)
    } else {
        Err(NnError::NoCuda { name: format!("cuda:{index}"), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Device = Device::Cuda(99);

    #[test]
    fn a_graph_on_the_cpu_is_an_error_and_its_work_does_not_run() {
        for device in [Device::Cpu, NEVER] {
            let mut ran = false;
            let graph = CudaGraph::capture(device, None, || ran = true);
            match (device, graph) {
                (Device::Cpu, Err(NnError::NotOnCuda { device: Device::Cpu, .. })) => {}
                (_, Err(NnError::NoCuda { .. })) => {}
                (_, other) => panic!("{device:?}: {other:?}"),
            }
            assert!(!ran);
        }
    }

    #[test]
    fn memory_figures_are_an_error_where_there_is_no_device() {
        assert!(matches!(memory_stats(Device::Cpu), Err(NnError::NotOnCuda { .. })));
        assert!(matches!(memory_stats(NEVER), Err(NnError::NoCuda { .. })));
        assert!(matches!(reset_peak(Device::Cpu), Err(NnError::NotOnCuda { .. })));
        assert!(matches!(device_name(NEVER), Err(NnError::NoCuda { .. })));
    }

    #[test]
    fn waiting_for_the_cpu_returns_at_once() {
        assert!(synchronize(Device::Cpu).is_ok());
        assert!(matches!(synchronize(NEVER), Err(NnError::NoCuda { .. })));
    }

    #[test]
    fn a_message_of_the_cxx_side_becomes_an_error_with_its_first_line() {
        if Cuda::is_available() {
            return;
        }
        let error = shim::memory(0).expect_err("there is no device");
        let text = error.to_string();
        assert!(text.starts_with("reading memory figures failed: "), "{text}");
        assert!(!text.contains('\n') && text.len() > 40, "{text}");
    }

    #[test]
    fn a_graph_can_be_sent_to_another_thread() {
        fn send<T: Send>() {}
        send::<CudaGraph>();
    }
}
