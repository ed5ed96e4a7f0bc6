//! When conversations step: the 80 ms grid, and what one of them is due on it.

use std::time::{Duration, Instant};

use domain::frame::MS_PER_FRAME;

/// Time between two ticks.
pub(super) const TICK: Duration = Duration::from_millis(MS_PER_FRAME);
/// Ticks over which a line must never have been short before it is shortened.
const CALM_TICKS: u32 = 25;

/// What a user who sends nothing in time is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Absent {
    /// Silence, so that the conversation goes on: the agent can speak into it.
    #[default]
    Silence,
    /// Nothing: the conversation stands still until audio comes.
    Wait,
}

/// When a conversation steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// On the 80 ms clock of the engine.
    Realtime {
        /// What happens when the user is late.
        absent: Absent,
    },
    /// As soon as there is audio, as fast as the engine can: tests, evaluation, recordings.
    Audio,
}

/// The 80 ms grid. It runs while there is anything on it.
#[derive(Debug, Default)]
pub(super) struct Grid {
    next: Option<Instant>,
}

impl Grid {
    /// The next tick; the grid starts now if it stood.
    pub(super) fn due(&mut self, now: Instant) -> Instant {
        *self.next.get_or_insert(now)
    }

    /// Whether anybody is on the grid.
    pub(super) const fn runs(&self) -> bool {
        self.next.is_some()
    }

    /// Nobody is on the grid.
    pub(super) fn stop(&mut self) {
        self.next = None;
    }

    /// Moves to the next tick after `now`; gives the ticks that were passed over.
    pub(super) fn advance(&mut self, now: Instant) -> u32 {
        let Some(due) = self.next else { return 0 };
        let mut next = due + TICK;
        let mut passed = 0;
        while next + TICK <= now {
            next += TICK;
            passed += 1;
        }
        self.next = Some(next);
        passed
    }
}

/// What a conversation on the clock does at a tick.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It has a frame.
    Frame,
    /// Nothing came for long enough: silence.
    Silence,
    /// It sits the tick out.
    Nothing,
}

/// How far a conversation is behind the clock.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Ticks in a row without a frame.
    late: u32,
    /// Ticks sat out whose frames may still come.
    owed: u32,
    /// Ticks in a row after which at least two frames still waited.
    long: u32,
}

impl Lag {
    /// One tick with `waiting` frames in the line; silence is fed from the tick after `patience` late ones on.
    pub(super) fn tick(&mut self, waiting: usize, absent: Absent, patience: u32) -> Due {
        if waiting > 0 {
            self.late = 0;
            return Due::Frame;
        }
        self.long = 0;
        self.late = self.late.saturating_add(1);
        if absent == Absent::Silence && self.late > patience {
            return Due::Silence;
        }
        self.owed = (self.owed + 1).min(patience);
        Due::Nothing
    }

    /// Ticks that nobody worked on.
    pub(super) fn missed(&mut self, ticks: u32, patience: u32) {
        self.owed = self.owed.saturating_add(ticks).min(patience.max(1));
    }

    /// Whether a frame that waits after the tick makes up for one sat out.
    pub(super) fn catch_up(&mut self, waiting: usize) -> bool {
        let due = self.owed > 0 && waiting > 0;
        self.owed -= u32::from(due);
        due
    }

    /// After everything of a tick: whether the oldest of `waiting` frames goes because the line is never short and only
    /// makes the answers late.
    pub(super) fn shorten(&mut self, waiting: usize) -> bool {
        self.long = if waiting >= 2 { self.long + 1 } else { 0 };
        let shorten = self.long >= CALM_TICKS;
        if shorten {
            self.long = 0;
        }
        shorten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_user_is_given_silence_after_two_late_frames_and_may_make_up_for_those() {
        let mut lag = Lag::default();
        assert_eq!(lag.tick(1, Absent::Silence, 2), Due::Frame);
        let due: Vec<Due> = (0..4).map(|_| lag.tick(0, Absent::Silence, 2)).collect();
        assert_eq!(due, [Due::Nothing, Due::Nothing, Due::Silence, Due::Silence]);
        assert_eq!(lag.tick(4, Absent::Silence, 2), Due::Frame);
        assert!(lag.catch_up(3) && lag.catch_up(2) && !lag.catch_up(1));
        assert_eq!(lag.tick(0, Absent::Silence, 2), Due::Nothing, "patience starts anew");
    }

    #[test]
    fn one_who_waits_is_never_given_silence() {
        let mut lag = Lag::default();
        assert!((0..1_000).all(|_| lag.tick(0, Absent::Wait, 2) == Due::Nothing));
    }

    #[test]
    fn a_line_that_is_never_short_loses_its_oldest_frame_every_two_seconds() {
        let mut lag = Lag::default();
        assert_eq!((0..75).filter(|_| lag.shorten(2)).count(), 3);
        assert!((0..100).all(|i| !lag.shorten(if i % 20 == 0 { 1 } else { 3 })));
    }

    #[test]
    fn the_grid_keeps_its_times_and_counts_what_it_passes_over() {
        let start = Instant::now();
        let mut grid = Grid::default();
        assert_eq!(grid.due(start), start);
        assert_eq!(grid.advance(start + TICK / 2), 0);
        assert_eq!(grid.due(start + TICK), start + TICK);
        assert_eq!(grid.advance(start + TICK + TICK * 7 / 2), 2);
        assert_eq!(grid.due(start), start + TICK * 4);
        grid.stop();
        assert_eq!(grid.due(start + TICK * 9), start + TICK * 9);
    }
}
