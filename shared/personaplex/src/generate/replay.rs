//! The step as CUDA graphs: one for each number of cached rows it looks at, captured when first needed.

use std::collections::HashMap;

use nn::{CudaGraph, RingCache};

use super::inputs::StepInputs;
use super::row::RowOutput;
use crate::{Lm, PersonaplexError};

/// Cached rows that graphs look at; the last one is the whole ring.
const BUCKETS: [i64; 5] = [128, 256, 512, 1024, 2048];

/// Cached rows of `capacity` that a call looks at on CUDA when it needs `rows`: a longer look takes other kernels, so the
/// same number with and without graphs.
pub(super) fn bucket(capacity: i64, rows: i64) -> i64 {
    BUCKETS.into_iter().find(|b| rows <= *b).unwrap_or(capacity).min(capacity)
}

/// Calls before a capture: libraries pick their kernels and workspaces at first use.
const WARM_UPS: usize = 2;

/// What a graph was captured for.
type Key = (i64, i64, u64);

struct StepGraph {
    graph: CudaGraph,
    out: RowOutput,
}

/// Graphs of one batch. They hold the addresses of its inputs and caches and of the model's weights and adapters.
#[derive(Default)]
pub(crate) struct Graphs {
    captured: HashMap<Key, StepGraph>,
}

impl Graphs {
    /// Runs the call that `inputs` holds; `rows` cached rows are needed.
    pub(crate) fn replay(
        &mut self,
        lm: &Lm,
        inputs: &mut StepInputs,
        caches: &mut [RingCache],
        rows: i64,
        steps: i64,
    ) -> Result<&RowOutput, PersonaplexError> {
        let len = bucket(caches[0].shape().capacity(), rows);
        let key = (len, steps, lm.revision);
        if !self.captured.contains_key(&key) {
            // Graphs of other adapters are of no use any more.
            self.captured.retain(|k, _| k.2 == lm.revision);
            let captured = self.capture(lm, inputs, caches, len, steps)?;
            self.captured.insert(key, captured);
        }
        let step = &self.captured[&key];
        step.graph.replay()?;
        Ok(&step.out)
    }

    /// Captures the step. The warm-up runs with every slot sitting out, so the caches stay as they are.
    fn capture(
        &self,
        lm: &Lm,
        inputs: &mut StepInputs,
        caches: &mut [RingCache],
        len: i64,
        steps: i64,
    ) -> Result<StepGraph, PersonaplexError> {
        let _span = tracing::info_span!("lm.capture", rows = len, steps).entered();
        inputs.upload_inactive();
        for _ in 0..WARM_UPS {
            lm.feed_row(inputs, caches, len, steps);
        }
        nn::graph::synchronize(lm.device)?;
        let pool = self.captured.values().next().map(|s| &s.graph);
        let mut out = None;
        let graph =
            CudaGraph::capture(lm.device, pool, || out = Some(lm.feed_row(inputs, caches, len, steps)))?;
        inputs.upload();
        let out = out.expect("the closure has run");
        Ok(StepGraph { graph, out })
    }
}
