//! The codec's call recorded as a CUDA graph: some 200 kernels a frame launched as one.

use std::sync::Arc;

use nn::CudaGraph;
use tch::{Device, Kind, Tensor};

use super::{DecState, EncState, Mimi};
use crate::PersonaplexError;

/// Calls before a recording: libraries pick their kernels and workspaces at first use.
const WARM_UPS: usize = 2;

/// A recorded call with the tensors it reads and writes. It holds the addresses of the state it lies in and of the weights
/// of one codec.
pub(super) struct Recorded {
    graph: CudaGraph,
    input: Tensor,
    /// `[B]` bool.
    active: Tensor,
    /// `[B]` i64.
    start: Tensor,
    output: Tensor,
    /// The codec whose weights the graph reads.
    codec: Arc<()>,
}

impl Recorded {
    /// Records `call(input, active, start)`. Every slot sits the warm-up out, so the state stays as it is.
    fn capture(
        input: Tensor,
        device: Device,
        codec: &Arc<()>,
        mut call: impl FnMut(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Result<Self, PersonaplexError> {
        let slots = input.size()[0];
        let active = Tensor::zeros([slots], (Kind::Bool, device));
        let start = Tensor::zeros([slots], (Kind::Int64, device));
        if device.is_cuda() {
            for _ in 0..WARM_UPS {
                let _ = call(&input, &active, &start);
            }
        }
        nn::graph::synchronize(device)?;
        let mut output = None;
        let graph = CudaGraph::capture(device, None, || output = Some(call(&input, &active, &start)))?;
        let output = output.expect("the closure has run");
        Ok(Self { graph, input, active, start, output, codec: codec.clone() })
    }

    /// Whether a call with this input can be replayed for this codec.
    pub(super) fn serves(&self, mimi: &Mimi, input: &Tensor) -> bool {
        Arc::ptr_eq(&self.codec, &mimi.identity) && input.size() == self.input.size()
    }

    pub(super) fn replay(
        &mut self,
        input: &Tensor,
        active: &[bool],
        start: &[i64],
    ) -> Result<Tensor, PersonaplexError> {
        self.input.copy_(input);
        self.active.copy_(&Tensor::from_slice(active));
        self.start.copy_(&Tensor::from_slice(start));
        self.graph.replay()?;
        // The next replay overwrites the output.
        Ok(self.output.copy())
    }
}

impl Mimi {
    /// Records the encoder's call of `frames_per_call` frames for these slots as a CUDA graph; [`Mimi::encode_step`] with
    /// as many frames then replays it. Does not change what the slots remember. Memory for one call's features is kept.
    ///
    /// # Errors
    /// On the CPU, or when CUDA refuses; the state then works as before.
    pub fn record_encoder(&self, state: &mut EncState) -> Result<(), PersonaplexError> {
        let size = [state.slots(), 1, state.frames_per_call() * self.config.frame_size()];
        let pcm = Tensor::zeros(size, (Kind::Float, self.device));
        let call =
            |pcm: &Tensor, active: &Tensor, start: &Tensor| self.encode_tensors(state, pcm, active, start);
        let recorded = Recorded::capture(pcm, self.device, &self.identity, call)?;
        state.recorded = Some(recorded);
        Ok(())
    }

    /// As [`Mimi::record_encoder`] for [`Mimi::decode_step`] with all codebooks of the configuration.
    ///
    /// # Errors
    /// As [`Mimi::record_encoder`].
    pub fn record_decoder(&self, state: &mut DecState) -> Result<(), PersonaplexError> {
        let size = [state.slots(), self.codebooks(), state.frames_per_call()];
        let codes = Tensor::zeros(size, (Kind::Int64, self.device));
        let call = |codes: &Tensor, active: &Tensor, start: &Tensor| {
            self.decode_tensors(state, codes, active, start)
        };
        let recorded = Recorded::capture(codes, self.device, &self.identity, call)?;
        state.recorded = Some(recorded);
        Ok(())
    }
}
