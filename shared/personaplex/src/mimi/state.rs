use nn::{ConvState, ConvTrState};
use tch::Tensor;

use super::replay::Recorded;
use super::seanet;
use super::transformer::TransformerState;
use crate::PersonaplexError;

/// How far every slot of a batch is.
pub(super) struct Clock {
    /// Frames seen, per slot.
    frames: Vec<i64>,
    /// Most frames in one call.
    per_call: i64,
}

impl Clock {
    pub(super) fn new(slots: i64, per_call: i64) -> Self {
        assert!(slots > 0 && per_call > 0, "{slots} slots, {per_call} frames per call");
        Self { frames: vec![0; slots as usize], per_call }
    }

    /// Frames seen, per slot.
    pub(super) fn frames(&self) -> &[i64] {
        &self.frames
    }

    /// First step of a call, per slot, for a transformer with `rate` steps per frame.
    pub(super) fn starts(&self, rate: i64) -> Vec<i64> {
        self.frames.iter().map(|frames| frames * rate).collect()
    }

    fn advance(&mut self, active: &[bool], frames: i64) {
        assert_eq!(active.len(), self.frames.len(), "one flag per slot");
        for (seen, _) in self.frames.iter_mut().zip(active).filter(|(_, active)| **active) {
            *seen += frames;
        }
    }

    /// Checks the input `[B, middle, n * width]` and the flags of a call; gives n.
    pub(super) fn check(
        &self,
        what: &'static str,
        x: &Tensor,
        middle: std::ops::RangeInclusive<i64>,
        width: i64,
        active: &[bool],
    ) -> Result<i64, PersonaplexError> {
        let slots = self.frames.len();
        let wrong = |what, wanted, found| Err(PersonaplexError::Shape { what, wanted, found });
        if active.len() != slots {
            return wrong("active", format!("[{slots}]"), vec![active.len() as i64]);
        }
        if let [b, m, t] = x.size()[..] {
            let frames = t / width;
            let fits = b == slots as i64 && middle.contains(&m) && t % width == 0;
            if fits && (1..=self.per_call).contains(&frames) {
                return Ok(frames);
            }
        }
        let (low, high) = middle.into_inner();
        let middle = if low == high { format!("{low}") } else { format!("{low} to {high}") };
        wrong(what, format!("[{slots}, {middle}, 1 to {} times {width}]", self.per_call), x.size())
    }
}

macro_rules! clocked {
    ($state:ty) => {
        impl $state {
            /// Slots of the batch.
            pub fn slots(&self) -> i64 {
                self.clock.frames.len() as i64
            }

            /// Most frames that one call may bring.
            pub fn frames_per_call(&self) -> i64 {
                self.clock.per_call
            }

            /// Frames seen since the last reset, per slot.
            pub fn frames(&self) -> &[i64] {
                self.clock.frames()
            }

            /// Counts the frames of a call that ran outside the host wrappers, as a replayed graph does.
            pub fn advance(&mut self, active: &[bool], frames: i64) {
                self.clock.advance(active, frames);
            }
        }
    };
}

/// What encoder streams remember, one per slot of a batch. Every tensor is fixed and updated in place; `reset` also works
/// in place, so a captured graph stays valid. With the published sizes and one frame per call a slot takes 8.44 MB
/// (46 kB of convolution history, the rest keys and values: 8 layers x 2 x 256 rows x 512 f32), encoder and decoder
/// together 16.9 MB; every further frame per call adds two rows.
pub struct EncState {
    /// Before the tensors whose addresses it holds, so that it is dropped first.
    pub(super) recorded: Option<Recorded>,
    pub(super) convs: seanet::EncoderState,
    pub(super) transformer: TransformerState,
    pub(super) downsample: ConvState,
    pub(super) clock: Clock,
}

/// What decoder streams remember, one per slot of a batch; otherwise as [`EncState`]. 8.44 MB per slot, too.
pub struct DecState {
    pub(super) recorded: Option<Recorded>,
    pub(super) upsample: ConvTrState,
    pub(super) transformer: TransformerState,
    pub(super) convs: seanet::DecoderState,
    pub(super) clock: Clock,
}

clocked!(EncState);
clocked!(DecState);

impl EncState {
    /// Makes a slot as good as new, whatever it has seen.
    pub fn reset(&mut self, slot: i64) {
        self.convs.reset(slot);
        self.transformer.reset(slot);
        self.downsample.reset(slot);
        self.clock.frames[slot as usize] = 0;
    }

    /// Copies of everything a slot remembers, for comparison.
    pub fn snapshot(&self, slot: i64) -> Vec<Tensor> {
        let parts = [self.convs.slot(slot), self.transformer.slot(slot), self.downsample.slot(slot)];
        parts.into_iter().flatten().collect()
    }
}

impl DecState {
    /// Makes a slot as good as new, whatever it has seen.
    pub fn reset(&mut self, slot: i64) {
        self.upsample.reset(slot);
        self.transformer.reset(slot);
        self.convs.reset(slot);
        self.clock.frames[slot as usize] = 0;
    }

    /// Copies of everything a slot remembers, for comparison.
    pub fn snapshot(&self, slot: i64) -> Vec<Tensor> {
        let parts = [vec![self.upsample.slot(slot)], self.transformer.slot(slot), self.convs.slot(slot)];
        parts.into_iter().flatten().collect()
    }
}
