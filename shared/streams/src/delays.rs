//! The acoustic delay: codebooks 1..8 of each side lag codebook 0 by one row inside the model.
//!
//! Datasets hold un-delayed frames. Row `r` of channel `k` is frame `r - delays[k]`.

use crate::layout::{CHANNELS, Frame};
use crate::tokens::{AUDIO_INITIAL, TEXT_INITIAL};

/// Delay of every channel in the published model.
pub const PERSONAPLEX: [usize; CHANNELS] = [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1];

/// Values of rows that lie before a channel's first frame.
pub const INITIAL: Frame = {
    let mut row = [AUDIO_INITIAL; CHANNELS];
    row[0] = TEXT_INITIAL;
    row
};

/// Delays `frames` into as many rows: the last `delays[k]` frames of channel `k` fall off the end.
#[must_use]
pub fn apply<const K: usize>(frames: &[[i32; K]], delays: &[usize; K], initial: &[i32; K]) -> Vec<[i32; K]> {
    rows(frames, delays, initial, frames.len())
}

/// Delays `frames` into `frames.len() + max(delays)` rows, losing nothing; rows past a channel's end hold -1.
#[must_use]
pub fn apply_full<const K: usize>(
    frames: &[[i32; K]],
    delays: &[usize; K],
    initial: &[i32; K],
) -> Vec<[i32; K]> {
    rows(frames, delays, initial, frames.len() + delays.iter().copied().max().unwrap_or(0))
}

fn rows<const K: usize>(
    frames: &[[i32; K]],
    delays: &[usize; K],
    initial: &[i32; K],
    n: usize,
) -> Vec<[i32; K]> {
    (0..n)
        .map(|r| {
            std::array::from_fn(|k| match r.checked_sub(delays[k]) {
                None => initial[k],
                Some(t) => frames.get(t).map_or(-1, |f| f[k]),
            })
        })
        .collect()
}

/// Undoes [`apply`]: frame `t` of channel `k` is row `t + delays[k]`; frames whose row is missing hold -1.
///
/// The second value is true where the frame is known, channel by channel.
#[must_use]
pub fn undo<const K: usize>(rows: &[[i32; K]], delays: &[usize; K]) -> (Vec<[i32; K]>, Vec<[bool; K]>) {
    (0..rows.len())
        .map(|t| {
            let frame = std::array::from_fn(|k| rows.get(t + delays[k]).map_or(-1, |r| r[k]));
            let known = std::array::from_fn(|k| t + delays[k] < rows.len());
            (frame, known)
        })
        .unzip()
}

/// Whether frame `t` of `channel` is lost to the delay when `total` rows are modelled (no loss there).
#[must_use]
pub fn is_delay_tail(channel: usize, t: usize, total: usize) -> bool {
    t + PERSONAPLEX[channel] >= total
}
