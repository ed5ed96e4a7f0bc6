//! How many calls run at once: one more after every 20 good ones, half as many when the vendor says that it is too many
//! (additive increase, multiplicative decrease), and none while a limit of the account is used up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::types::RateLimits;

/// Good calls that earn one more at once.
const SUCCESSES_TO_GROW: u32 = 20;
/// Longest wait that a header can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct State {
    limit: usize,
    running: usize,
    successes: u32,
    paused_until: Option<Instant>,
    halved_at: Option<Instant>,
}

/// The limit; cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    most: usize,
}

/// The right to one call; ends with this value.
#[derive(Debug)]
pub struct Permit(Limiter);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Limiter {
    /// Starts at `first` calls at once and never grows past `most`.
    #[must_use]
    pub fn new(first: usize, most: usize) -> Self {
        let most = most.max(1);
        let state = State {
            limit: first.clamp(1, most),
            running: 0,
            successes: 0,
            paused_until: None,
            halved_at: None,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default(), most }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    pub async fn acquire(&self) -> Permit {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let pause = {
                let mut state = self.state();
                let pause = state.paused_until.filter(|until| *until > Instant::now());
                if pause.is_none() && state.running < state.limit {
                    state.running += 1;
                    return Permit(self.clone());
                }
                pause
            };
            match pause {
                Some(until) => tokio::time::sleep_until(until).await,
                None => changed.await,
            }
        }
    }

    /// A call went well.
    pub fn succeeded(&self, limits: &RateLimits) {
        let mut state = self.state();
        state.successes += 1;
        if state.successes >= SUCCESSES_TO_GROW {
            state.successes = 0;
            state.limit = (state.limit + 1).min(self.most);
        }
        drop(state);
        self.observe(limits);
        self.changed.notify_waiters();
    }

    /// The vendor said that it is too much. Calls that were under way together count once.
    pub fn throttled(&self, wait: Option<Duration>, limits: &RateLimits) {
        let now = Instant::now();
        let mut state = self.state();
        state.successes = 0;
        if state.halved_at.is_none_or(|at| now.duration_since(at) > Duration::from_secs(1)) {
            state.limit = (state.limit / 2).max(1);
            state.halved_at = Some(now);
        }
        drop(state);
        if let Some(wait) = wait {
            self.pause(wait);
        }
        self.observe(limits);
    }

    fn observe(&self, limits: &RateLimits) {
        let used_up = limits.requests_remaining == Some(0) || limits.tokens_remaining == Some(0);
        if let (true, Some(wait)) = (used_up, limits.reset_after) {
            self.pause(wait);
        }
    }

    fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.min(LONGEST_PAUSE);
        let mut state = self.state();
        state.paused_until = Some(state.paused_until.map_or(until, |old| old.max(until)));
    }

    /// Calls allowed at once now.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.state().limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_grows_by_one_after_twenty_good_calls_and_halves_once_for_calls_that_ran_together() {
        let limiter = Limiter::new(4, 8);
        for _ in 0..20 {
            limiter.succeeded(&RateLimits::default());
        }
        assert_eq!(limiter.limit(), 5);
        for _ in 0..4 {
            limiter.throttled(None, &RateLimits::default());
        }
        assert_eq!(limiter.limit(), 2);
        for _ in 0..1000 {
            limiter.succeeded(&RateLimits::default());
        }
        assert_eq!(limiter.limit(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_passes_the_limit_and_everybody_waits_for_a_reset() {
        let limiter = Limiter::new(2, 2);
        let (one, two) = (limiter.acquire().await, limiter.acquire().await);
        assert!(tokio::time::timeout(Duration::from_secs(1), limiter.acquire()).await.is_err());
        drop((one, two));
        let used_up = RateLimits {
            requests_remaining: Some(0),
            tokens_remaining: None,
            reset_after: Some(Duration::from_secs(7)),
        };
        limiter.succeeded(&used_up);
        let before = Instant::now();
        let _permit = limiter.acquire().await;
        assert!(before.elapsed() >= Duration::from_secs(7));
    }
}
