//! Loading: tensor by tensor from mapped shards to the device.

use std::path::Path;
use std::time::Instant;

use tch::{Device, Kind, Tensor};

use crate::Outcome;
use crate::measure::{HostMemory, Table, device_memory, gib, reset_peak};

/// Host memory that loading may take above the mapped file.
const MOST: u64 = 1 << 30;

pub fn run(dir: &Path, device: Device, kind: Kind, table: &mut Table) -> Outcome {
    // CUDA's own start-up (hundreds of MiB, a second) is not loading.
    let one = Tensor::ones([16, 16], (kind, device));
    let _ = one.matmul(&one);
    nn::graph::synchronize(device)?;
    reset_peak(device)?;
    let (start, memory) = (Instant::now(), HostMemory::watch());
    let lm = crate::open(dir, device, kind)?;
    let seconds = start.elapsed().as_secs_f64();
    let (before, peak) = memory.finish();
    table.row(
        "load: time",
        format!("{seconds:.1} s"),
        format!("{} layers, {kind:?}", lm.config().num_layers),
    );
    if device.is_cuda() {
        let wanted = format!("at most {} GiB above {} GiB before", gib(MOST), gib(before));
        table.must("load: host memory", format!("{} GiB", gib(peak)), peak <= MOST, &wanted);
    } else {
        table.row("load: host memory", format!("{} GiB", gib(peak)), "the weights themselves, on the CPU");
    }
    table.memory("load: device memory", device_memory(device)?);
    Ok(())
}
