//! What happens when a conversation has filled its window.

use std::time::{Duration, Instant};

use personaplex::{Frame, Lm, PersonaplexError, Prefix};
use serde::Deserialize;

/// Rows fed at a time while a window is refreshed.
const CHUNKS: std::ops::RangeInclusive<usize> = 16..=256;
/// Time that feeding them should take: a bounded piece of work between two ticks.
const PIECE: Duration = Duration::from_millis(15);
/// Frames before the end of the window at which it is announced, or its refresh begins.
const AHEAD: usize = 125;
/// Frames that must be left after an injection.
const SPARE: usize = 25;
/// Fewer rows than this behind the prompt are not worth a refresh.
const FEWEST: usize = 8;

/// `[inference].window_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowPolicy {
    /// The prompt and the newest rows are fed anew, without a missed frame. A prompt that leaves no room for that slides.
    #[default]
    Refresh,
    /// The oldest rows are forgotten, the prompt first.
    Slide,
    /// The conversation ends, announced ten seconds before.
    Stop,
}

/// Rules for the window of one batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    policy: WindowPolicy,
    /// Rows of a slot.
    rows: usize,
    /// Newest rows that a refresh keeps.
    kept: usize,
}

/// Rows that are fed at a time on this machine.
pub(super) struct Chunk(usize);

impl Default for Chunk {
    fn default() -> Self {
        Self(*CHUNKS.end())
    }
}

impl Chunk {
    fn learn(&mut self, took: Duration) {
        if took > PIECE {
            self.0 = (self.0 / 2).max(*CHUNKS.start());
        } else if took < PIECE / 3 {
            self.0 = (self.0 * 2).min(*CHUNKS.end());
        }
    }
}

/// A window being filled anew.
pub(super) struct Refresh {
    prefix: Prefix,
    /// Rows of the log that are in it, or were left out.
    upto: usize,
}

impl Window {
    pub(super) const fn new(policy: WindowPolicy, rows: usize, kept: usize) -> Self {
        Self { policy, rows, kept }
    }

    /// Rows kept by a refresh behind a prompt of `prompt` rows: at most half of what it leaves, so that the next one is
    /// not due at once.
    fn kept(&self, prompt: usize) -> usize {
        self.kept.min(self.rows.saturating_sub(prompt) / 2)
    }

    fn refreshes(&self, prompt: usize) -> bool {
        self.policy == WindowPolicy::Refresh && self.kept(prompt) >= FEWEST
    }

    /// Rows before the end at which work on the next window begins.
    fn ahead(&self, prompt: usize) -> usize {
        AHEAD.min(self.kept(prompt) / 2)
    }

    /// Whether a conversation with `fed` rows, `prompt` of them its prompt, needs a fresh window: it is nearly full, or
    /// `waiting` tokens of injections would not end in this one.
    pub(super) fn is_due(&self, fed: usize, prompt: usize, waiting: usize) -> bool {
        let behind = fed.saturating_sub(prompt);
        let straddles = waiting > 0 && behind > self.kept(prompt) && fed + waiting + SPARE > self.rows;
        self.refreshes(prompt) && (fed + self.ahead(prompt) >= self.rows || straddles)
    }

    /// Whether the next row must not be fed before the window is fresh.
    pub(super) fn is_full(&self, fed: usize, prompt: usize) -> bool {
        self.refreshes(prompt) && fed >= self.rows
    }

    /// Frames left, where the end of the window is the end of the conversation.
    pub(super) fn left(&self, fed: usize) -> Option<usize> {
        (self.policy == WindowPolicy::Stop).then(|| self.rows.saturating_sub(fed))
    }

    /// Most tokens of an injection now.
    pub(super) fn room(&self, fed: usize) -> Option<usize> {
        self.left(fed).map(|left| left.saturating_sub(SPARE))
    }

    /// Frames before the end at which it is announced.
    pub(super) const fn announced() -> usize {
        AHEAD
    }
}

impl Refresh {
    /// Begins behind a prompt's `prefix`; `log` are all complete rows.
    pub(super) fn begin(prefix: &Prefix, log: &[Frame], window: &Window) -> Self {
        let upto = log.len().saturating_sub(window.kept(prefix.fed())).max(prefix.fed());
        Self { prefix: prefix.fork(), upto }
    }

    /// As [`Refresh::begin`] with all rows, if they leave room in the window.
    pub(super) fn resume(prefix: &Prefix, log: &[Frame], window: &Window) -> Self {
        if log.len() + window.ahead(prefix.fed()) < window.rows {
            return Self { prefix: prefix.fork(), upto: prefix.fed() };
        }
        Self::begin(prefix, log, window)
    }

    /// Feeds some rows; `true` when all of the log is in.
    pub(super) fn advance(
        &mut self,
        lm: &Lm,
        log: &[Frame],
        chunk: &mut Chunk,
    ) -> Result<bool, PersonaplexError> {
        let (started, to) = (Instant::now(), log.len().min(self.upto + chunk.0));
        lm.extend(&mut self.prefix, &log[self.upto.min(to)..to])?;
        self.upto = to;
        chunk.learn(started.elapsed());
        Ok(to == log.len())
    }

    /// The prefix, with what is known of the rows to come.
    pub(super) fn finish(mut self, lm: &Lm, open: &[Frame]) -> Result<Prefix, PersonaplexError> {
        self.prefix.set_open(lm, open)?;
        Ok(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_begins_before_the_end_and_earlier_for_an_injection_that_would_straddle_it() {
        let window = Window::new(WindowPolicy::Refresh, 3_000, 1_500);
        assert_eq!((window.kept(124), window.kept(1_000), window.ahead(124)), (1_438, 1_000, 125));
        assert!(!window.is_due(2_874, 124, 0) && window.is_due(2_875, 124, 0));
        assert!(!window.is_due(2_700, 124, 90) && window.is_due(2_900 - 20, 124, 96));
        assert!(window.is_due(2_800, 124, 200) && !window.is_due(1_500, 124, 2_000));
        assert!(!window.is_full(2_999, 124) && window.is_full(3_000, 124));
        assert_eq!(window.left(10), None);
    }

    #[test]
    fn a_prompt_that_leaves_no_room_slides_and_stop_counts_down() {
        let narrow = Window::new(WindowPolicy::Refresh, 100, 1_500);
        assert!(!narrow.is_due(100, 90, 0) && !narrow.is_full(200, 90));
        let slide = Window::new(WindowPolicy::Slide, 100, 1_500);
        assert!(!slide.is_due(100, 10, 50));
        let stop = Window::new(WindowPolicy::Stop, 100, 1_500);
        assert_eq!((stop.left(40), stop.room(40), stop.left(120)), (Some(60), Some(35), Some(0)));
    }

    #[test]
    fn pieces_of_work_become_as_long_as_the_machine_is_fast() {
        let mut chunk = Chunk::default();
        (0..9).for_each(|_| chunk.learn(PIECE * 2));
        assert_eq!(chunk.0, 16);
        chunk.learn(PIECE / 2);
        assert_eq!(chunk.0, 16);
        (0..9).for_each(|_| chunk.learn(PIECE / 4));
        assert_eq!(chunk.0, 256);
    }
}
