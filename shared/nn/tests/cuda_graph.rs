//! CUDA graphs on a GPU. Without one there is nothing to record on: the tests of `graph.rs` say what happens then.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nn::graph::{memory_stats, reset_peak, synchronize};
use nn::{CudaGraph, NnError};
use tch::{Cuda, Device, Kind, Tensor};

const GPU: Device = Device::Cuda(0);

fn there_is_no_gpu() -> bool {
    !Cuda::is_available()
}

/// Static input and output and a few layers between them, as a step of a model has them.
struct Work {
    weights: Vec<Tensor>,
    input: Tensor,
    output: Tensor,
}

impl Work {
    fn new() -> Self {
        let options = (Kind::Float, GPU);
        let weights = (0..8).map(|_| Tensor::randn([256, 256], options) * 0.1).collect();
        Self { weights, input: Tensor::randn([4, 256], options), output: Tensor::zeros([4, 256], options) }
    }

    fn run(&self) {
        let mut x = self.input.shallow_clone();
        for w in &self.weights {
            x = x.matmul(w).silu();
        }
        self.output.shallow_clone().copy_(&x);
    }

    /// What an eager run makes of the present input.
    fn eager(&self) -> Tensor {
        self.run();
        self.output.copy()
    }
}

fn filled(tensor: &Tensor) -> Result<(), NnError> {
    let values = Tensor::randn(tensor.size(), (Kind::Float, GPU));
    tensor.shallow_clone().copy_(&values);
    synchronize(GPU)
}

#[test]
fn a_replay_computes_what_eager_execution_does_for_every_input() -> Result<(), NnError> {
    if there_is_no_gpu() {
        return Ok(());
    }
    let work = Work::new();
    let _ = work.eager();
    let graph = CudaGraph::capture(GPU, None, || work.run())?;
    for _ in 0..3 {
        filled(&work.input)?;
        let wanted = work.eager();
        let _ = work.output.shallow_clone().fill_(f64::NAN);
        graph.replay()?;
        synchronize(GPU)?;
        assert_eq!(work.output, wanted);
    }
    Ok(())
}

#[test]
fn graphs_that_share_memory_take_little_more_than_one() -> Result<(), NnError> {
    if there_is_no_gpu() {
        return Ok(());
    }
    let big = |out: &Tensor| {
        let x = Tensor::ones([64 << 20], (Kind::Float, GPU)); // 256 MiB
        out.shallow_clone().copy_(&x.sum(Kind::Float));
    };
    let out = Tensor::zeros([], (Kind::Float, GPU));
    big(&out);
    nn::graph::empty_cache(GPU)?;
    reset_peak(GPU)?;
    let first = CudaGraph::capture(GPU, None, || big(&out))?;
    let one = memory_stats(GPU)?.reserved;
    let second = CudaGraph::capture(GPU, Some(&first), || big(&out))?;
    let two = memory_stats(GPU)?.reserved;
    assert!(two < one + (64 << 20), "{one} bytes for one graph, {two} for two");
    for graph in [&first, &second] {
        let _ = out.shallow_clone().fill_(0.0);
        graph.replay()?;
        assert_eq!(out.double_value(&[]), f64::from(64 << 20));
    }
    Ok(())
}

#[test]
fn work_that_cannot_be_recorded_is_an_error_and_leaves_the_device_usable() -> Result<(), NnError> {
    if there_is_no_gpu() {
        return Ok(());
    }
    let work = Work::new();
    let before = work.eager();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        CudaGraph::capture(GPU, None, || {
            work.run();
            // Reading a value waits for the device, which a recording cannot.
            let _ = work.output.sum(Kind::Float).double_value(&[]);
        })
    }));
    assert!(!matches!(failed, Ok(Ok(_))), "a host read was recorded");
    assert_eq!(work.eager(), before);
    let random = Tensor::randn([16], (Kind::Float, GPU));
    assert!(random.isfinite().all().int64_value(&[]) == 1);
    let graph = CudaGraph::capture(GPU, None, || work.run())?;
    let _ = work.output.shallow_clone().fill_(0.0);
    graph.replay()?;
    synchronize(GPU)?;
    assert_eq!(work.output, before);
    Ok(())
}

#[test]
fn a_panic_in_the_work_goes_on_and_the_next_capture_succeeds() -> Result<(), NnError> {
    if there_is_no_gpu() {
        return Ok(());
    }
    let work = Work::new();
    let wanted = work.eager();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        CudaGraph::capture(GPU, None, || {
            work.run();
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    let graph = CudaGraph::capture(GPU, None, || work.run())?;
    // Recorded on one thread, replayed on another.
    let graph =
        std::thread::spawn(move || graph.replay().map(|()| graph)).join().expect("the thread returns")?;
    synchronize(GPU)?;
    assert_eq!(work.output, wanted);
    drop(graph);
    Ok(())
}
