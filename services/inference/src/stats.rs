//! Measured facts of one session.

use std::time::Duration;

use domain::frame::MS_PER_FRAME;
use domain::session::SessionStats;

/// Compute times and counts, collected frame by frame.
#[derive(Debug, Default)]
pub struct Tally {
    /// Milliseconds per frame.
    times: Vec<f32>,
    late: u64,
    hidden: u64,
    ready_ms: f64,
}

impl Tally {
    /// The handshake was sent this long after the request came.
    pub fn ready(&mut self, after: Duration) {
        self.ready_ms = after.as_secs_f64() * 1e3;
        metrics::histogram!("ppx_session_ready_seconds").record(after.as_secs_f64());
    }

    /// One frame was computed.
    pub fn frame(&mut self, took: Duration, hidden: bool) {
        let ms = took.as_secs_f32() * 1e3;
        self.times.push(ms);
        self.late += u64::from(ms > MS_PER_FRAME as f32);
        self.hidden += u64::from(hidden);
        metrics::histogram!("ppx_frame_step_seconds").record(took.as_secs_f64());
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

    #[test]
    fn percentiles_are_values_that_occurred_and_late_frames_are_those_over_80_ms() {
        let mut tally = Tally::default();
        for ms in 1..=100u64 {
            tally.frame(Duration::from_millis(ms), ms > 98);
        }
        let stats = tally.stats(3, 40);
        assert_eq!((stats.frames, stats.hidden_frames, stats.late_frames), (100, 2, 20));
        assert_eq!((stats.frame_ms_p50, stats.frame_ms_p99, stats.frame_ms_max), (50.0, 99.0, 100.0));
        assert_eq!((stats.bad_pages, stats.dropped_ms), (3, 40));
        assert_eq!(Tally::default().stats(0, 0), SessionStats::default());
    }
}
