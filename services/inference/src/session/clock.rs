//! The time limits of one session.

use std::time::{Duration, Instant};

use crate::InferenceSettings;
use crate::protocol::Ending;

/// Time between two pings.
const PING_EVERY: Duration = Duration::from_secs(5);
/// A connection without any sign of life for this long is taken for dead.
const DEAD_AFTER: Duration = Duration::from_secs(12);

/// When what was heard last.
pub(super) struct Clock {
    opened: Instant,
    /// Last message of any kind.
    heard: Instant,
    /// Last message that was audio, control or JSON.
    frame: Instant,
    pinged: Instant,
    idle: Duration,
    longest: Duration,
}

impl Clock {
    pub(super) fn new(now: Instant, settings: &InferenceSettings) -> Self {
        let (idle, longest) = (settings.idle(), settings.max_session());
        Self { opened: now, heard: now, frame: now, pinged: now, idle, longest }
    }

    pub(super) const fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// A message that keeps the session from being idle. Also called after work during which nobody listened.
    pub(super) fn busy(&mut self, now: Instant) {
        self.heard = now;
        self.frame = now;
    }

    /// The client waits for us: it owes no frame yet.
    pub(super) fn waiting(&mut self, now: Instant) {
        self.frame = now;
    }

    /// The limit that has passed, if any.
    pub(super) fn check(&self, now: Instant) -> Result<(), Ending> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(self.opened) >= self.longest {
            Err(Ending::MaxDuration)
        } else if since(self.frame) >= self.idle {
            Err(Ending::Idle)
        } else if since(self.heard) >= DEAD_AFTER {
            Err(Ending::ClientGone)
        } else {
            Ok(())
        }
    }

    /// Whether it is time for a ping; the next one is due later.
    pub(super) fn ping_due(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.pinged) >= PING_EVERY;
        if due {
            self.pinged = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(now: Instant) -> Clock {
        let s = Duration::from_secs;
        Clock { opened: now, heard: now, frame: now, pinged: now, idle: s(60), longest: s(100) }
    }

    #[test]
    fn pongs_keep_a_connection_alive_but_not_busy() {
        let start = Instant::now();
        let at = |n| start + Duration::from_secs(n);
        let mut clock = clock(start);
        assert_eq!(clock.check(at(11)), Ok(()));
        assert_eq!(clock.check(at(12)), Err(Ending::ClientGone));
        for n in 1..60 {
            clock.heard(at(n));
            assert_eq!(clock.check(at(n)), Ok(()));
        }
        clock.heard(at(60));
        assert_eq!(clock.check(at(60)), Err(Ending::Idle));
        clock.busy(at(99));
        assert_eq!(clock.check(at(99)), Ok(()));
        assert_eq!(clock.check(at(100)), Err(Ending::MaxDuration));
    }

    #[test]
    fn pings_are_due_every_five_seconds() {
        let start = Instant::now();
        let mut clock = clock(start);
        let due = (1..=20).filter(|n| clock.ping_due(start + Duration::from_secs(*n))).count();
        assert_eq!(due, 4);
    }
}
