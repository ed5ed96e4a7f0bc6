//! Measured facts of one session.

use std::time::Duration;

use domain::frame::MS_PER_FRAME;
use domain::session::SessionStats;
use streams::tokens::is_padding;

use crate::engine::AgentFrame;

/// Below this level a frame counts as silence, dBFS.
const QUIET_DBFS: f32 = -45.0;

/// Compute times and counts, collected frame by frame.
#[derive(Debug, Default)]
pub struct Tally {
    /// Milliseconds per frame.
    times: Vec<f32>,
    late: u64,
    hidden: u64,
    absent: u64,
    /// Frames without hidden context in which the agent's text is padding, and in which its sound is silence.
    padding: u64,
    quiet: u64,
    ready_ms: f64,
}

impl Tally {
    /// The handshake was sent this long after the request came.
    pub fn ready(&mut self, after: Duration) {
        self.ready_ms = after.as_secs_f64() * 1e3;
        metrics::histogram!("ppx_session_ready_seconds").record(after.as_secs_f64());
    }

    /// One frame was computed.
    pub fn frame(&mut self, frame: &AgentFrame) {
        let took = frame.took;
        let ms = took.as_secs_f32() * 1e3;
        self.times.push(ms);
        self.late += u64::from(ms > MS_PER_FRAME as f32);
        self.hidden += u64::from(frame.hidden);
        self.absent += u64::from(frame.was_absent);
        self.padding += u64::from(frame.text.is_some_and(is_padding));
        self.quiet += u64::from(!frame.hidden && audio::levels::rms_dbfs(&frame.pcm) < QUIET_DBFS);
        metrics::histogram!("ppx_frame_step_seconds").record(took.as_secs_f64());
    }

    /// Of the frames without hidden context; 0 when there are none.
    fn share(&self, frames: u64) -> f64 {
        let spoken = self.times.len() as u64 - self.hidden;
        if spoken == 0 { 0.0 } else { frames as f64 / spoken as f64 }
    }

    /// The facts so far, with what the input side counted.
    #[must_use]
    pub fn stats(&self, bad_pages: u64, dropped_ms: u64) -> SessionStats {
        let mut sorted = self.times.clone();
        sorted.sort_by(f32::total_cmp);
        SessionStats {
            frames: self.times.len() as u64,
            hidden_frames: self.hidden,
            frame_ms_p50: percentile(&sorted, 50),
            frame_ms_p99: percentile(&sorted, 99),
            frame_ms_max: percentile(&sorted, 100),
            late_frames: self.late,
            ready_ms: self.ready_ms,
            bad_pages,
            dropped_ms,
            absent_frames: self.absent,
            pad_silence_share: self.share(self.padding),
            energy_silence_share: self.share(self.quiet),
        }
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed; 0 when there are none.
fn percentile(sorted: &[f32], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |v| f64::from(*v))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ms: u64, hidden: bool, text: i32, level: f32) -> AgentFrame {
        AgentFrame {
            index: 0,
            pcm: vec![level; 1_920],
            agent: [0; 8],
            text: (!hidden).then_some(text),
            hidden,
            events: Vec::new(),
            notices: Vec::new(),
            user: Vec::new(),
            was_absent: ms > 97,
            took: Duration::from_millis(ms),
        }
    }

    #[test]
    fn percentiles_are_values_that_occurred_and_late_frames_are_those_over_80_ms() {
        let mut tally = Tally::default();
        for ms in 1..=100u64 {
            tally.frame(&frame(ms, ms > 98, 500, 0.1));
        }
        let stats = tally.stats(3, 40);
        assert_eq!((stats.frames, stats.hidden_frames, stats.late_frames), (100, 2, 20));
        assert_eq!((stats.frame_ms_p50, stats.frame_ms_p99, stats.frame_ms_max), (50.0, 99.0, 100.0));
        assert_eq!((stats.bad_pages, stats.dropped_ms, stats.absent_frames), (3, 40, 3));
        assert_eq!(Tally::default().stats(0, 0), SessionStats::default());
    }

    #[test]
    fn silence_is_told_by_text_and_by_sound_and_hidden_frames_are_in_neither() {
        let mut tally = Tally::default();
        // Padding with sound, a word in silence, a word with sound, padding in silence; then hidden ones.
        for (text, level) in [(3, 0.1), (500, 0.0), (500, 0.1), (0, 0.001)] {
            tally.frame(&frame(1, false, text, level));
        }
        for _ in 0..10 {
            tally.frame(&frame(1, true, 3, 0.0));
        }
        let stats = tally.stats(0, 0);
        assert_eq!((stats.pad_silence_share, stats.energy_silence_share), (0.5, 0.5));
    }
}
