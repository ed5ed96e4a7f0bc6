//! A circuit breaker that all callers of a provider share: after failures in a row nobody asks for a while, then one
//! does, and its end decides.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open_until: Option<Instant>,
    probing: bool,
}

/// The breaker.
#[derive(Debug)]
pub struct Breaker {
    state: Mutex<State>,
    /// Failures in a row that open it.
    threshold: u32,
    /// How long it stays open.
    rest: Duration,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(threshold: u32, rest: Duration) -> Self {
        Self { state: Mutex::default(), threshold, rest }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call may be made now; otherwise the time to wait. After the rest exactly one caller is let through.
    ///
    /// # Errors
    /// The wait.
    pub fn admit(&self) -> Result<(), Duration> {
        let mut state = self.state();
        let Some(until) = state.open_until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Err(left);
        }
        if state.probing {
            // A probe that was dropped without an end does not block the others for good.
            state.open_until = Some(Instant::now() + self.rest);
            state.probing = false;
            return Err(self.rest);
        }
        state.probing = true;
        state.open_until = Some(Instant::now() + self.rest / 10);
        Ok(())
    }

    /// A call came to an end that says that the vendor works.
    pub fn succeeded(&self) {
        *self.state() = State::default();
    }

    /// A call found the vendor overloaded or broken.
    pub fn failed(&self) {
        let mut state = self.state();
        state.failures += 1;
        if state.failures >= self.threshold {
            state.open_until = Some(Instant::now() + self.rest);
            state.probing = false;
        }
    }

    /// Whether calls are held back now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state().open_until.is_some_and(|until| until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_probe_closes_it() {
        let breaker = Breaker::new(5, Duration::from_secs(30));
        for _ in 0..4 {
            breaker.failed();
        }
        breaker.succeeded();
        for _ in 0..4 {
            breaker.failed();
            assert!(breaker.admit().is_ok());
        }
        breaker.failed();
        assert!(breaker.admit().is_err_and(|wait| wait <= Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.admit().is_ok(), "a probe");
        assert!(breaker.admit().is_err(), "only one");
        breaker.failed();
        assert!(breaker.is_open());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.admit().is_ok());
        breaker.succeeded();
        assert!(breaker.admit().is_ok() && breaker.admit().is_ok());
    }
}
