//! Where an injection belongs on the frame grid (finetune.md 7), in integer milliseconds.

use domain::alignment::AlignedTurn;
use domain::dialogue::Speaker;
use domain::frame::{frame_ceil, frame_floor};
use domain::injection::{Injection, Placement};

use crate::error::StreamsError;

/// What [`place_injections`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffsetReport {
    /// Injections that fall into a turn of the user.
    pub proactive: usize,
    /// Injections that follow a turn of the agent.
    pub reactive: usize,
    /// Injections whose frame changed; zero when everything was placed already.
    pub changed: usize,
}

/// Frame of an injection that refers to turn `after_turn`.
///
/// A turn of the user is entered at its start (proactive), a turn of the agent left at its end (reactive).
///
/// # Errors
/// When there is no such turn or the turns are not numbered in order.
pub fn place_after_turn(after_turn: u32, turns: &[AlignedTurn]) -> Result<(u32, Placement), StreamsError> {
    let position = usize::try_from(after_turn).unwrap_or(usize::MAX);
    let turn =
        turns.get(position).ok_or(StreamsError::AfterTurnOutOfRange { after_turn, turns: turns.len() })?;
    if turn.index != after_turn {
        return Err(StreamsError::TurnIndexMismatch { position, index: turn.index });
    }
    let (frame, placement) = match turn.speaker {
        Speaker::User => (frame_floor(turn.start_ms), Placement::Proactive),
        Speaker::Agent => (frame_ceil(turn.end_ms), Placement::Reactive),
    };
    Ok((u32::try_from(frame).unwrap_or(u32::MAX), placement))
}

/// Writes `frame_offset` of every injection; a second call changes nothing.
///
/// # Errors
/// See [`place_after_turn`]; also when a frame is at or past `total_frames`.
pub fn place_injections(
    injections: &mut [Injection],
    turns: &[AlignedTurn],
    total_frames: u32,
) -> Result<OffsetReport, StreamsError> {
    let mut report = OffsetReport::default();
    for (index, injection) in injections.iter_mut().enumerate() {
        let (offset, placement) = place_after_turn(injection.after_turn, turns)?;
        if offset >= total_frames {
            let (offset, frames) = (offset as usize, total_frames as usize);
            return Err(StreamsError::OffsetBeyondAudio { index, offset, frames });
        }
        match placement {
            Placement::Proactive => report.proactive += 1,
            Placement::Reactive => report.reactive += 1,
        }
        if injection.frame_offset.replace(offset) != Some(offset) {
            report.changed += 1;
        }
    }
    Ok(report)
}
