//! Waits between tries: full jitter, `rand(0, min(cap, base * 2^n))`, never shorter than what the vendor asks for.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, Retryable};
use rand::Rng;

use crate::error::{Action, LlmError};

/// How often and how long a request is tried.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Calls in all, the first included.
    pub tries: usize,
    /// Largest first wait.
    pub base: Duration,
    /// Largest wait of all.
    pub cap: Duration,
    /// Longest time from the first call to the start of the last.
    pub total: Duration,
}

impl BackoffBuilder for RetryPolicy {
    type Backoff = FullJitter;
    fn build(self) -> FullJitter {
        FullJitter { policy: self, made: 0 }
    }
}

/// The waits of one request.
#[derive(Debug)]
pub struct FullJitter {
    policy: RetryPolicy,
    made: usize,
}

impl Iterator for FullJitter {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        self.made += 1;
        if self.made >= self.policy.tries {
            return None;
        }
        let doublings = u32::try_from(self.made - 1).unwrap_or(20).min(20);
        let most = self.policy.base.saturating_mul(2u32.pow(doublings)).min(self.policy.cap);
        Some(rand::rng().random_range(Duration::ZERO..=most))
    }
}

/// Calls until it works, is not worth another try, or the policy ends.
///
/// # Errors
/// The last one.
pub async fn with_retries<T, F, Fut>(policy: RetryPolicy, call: F) -> Result<T, LlmError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, LlmError>>,
{
    let started = Instant::now();
    call.retry(policy)
        .when(|error: &LlmError| error.action() == Action::Retry)
        .adjust(|error: &LlmError, wait: Option<Duration>| {
            let wait = wait?.max(error.retry_after.unwrap_or_default());
            (started.elapsed() + wait <= policy.total).then_some(wait)
        })
        .notify(|error: &LlmError, wait: Duration| {
            tracing::info!(kind = ?error.kind, status = error.status, request = error.request_id, ?wait, "the call is tried again");
        })
        .await
}

/// The value of `retry-after`: seconds, also fractions of them, or a date.
#[must_use]
pub fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    let at = httpdate::parse_http_date(value.trim()).ok()?;
    Some(at.duration_since(std::time::SystemTime::now()).unwrap_or_default())
}

/// The value of a reset header: a time (RFC 3339), seconds, or spans such as `1m30s` and `250ms`.
#[must_use]
pub fn reset_after(value: &str) -> Option<Duration> {
    if let Ok(at) = chrono::DateTime::parse_from_rfc3339(value.trim()) {
        return Some((at.to_utc() - chrono::Utc::now()).to_std().unwrap_or_default());
    }
    retry_after(value).or_else(|| span(value.trim()))
}

fn span(mut rest: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let seconds = match &rest[digits..unit] {
            "ms" => number / 1000.0,
            "s" => number,
            "m" => number * 60.0,
            "h" => number * 3600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(seconds).ok()?;
        rest = &rest[unit..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn waits_and_resets_are_read_in_every_form_that_vendors_use() {
        assert_eq!(retry_after("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(reset_after("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(reset_after("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(reset_after("2020-01-01T00:00:00Z"), Some(Duration::ZERO));
        assert_eq!(reset_after("6 moons"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_the_vendor_asks_for_is_a_lower_bound_and_the_number_of_tries_an_upper_one() {
        let policy = RetryPolicy {
            tries: 3,
            base: Duration::from_millis(1),
            cap: Duration::from_millis(2),
            total: Duration::from_secs(900),
        };
        let calls = std::cell::Cell::new(0);
        let started = tokio::time::Instant::now();
        let ended: Result<(), LlmError> = with_retries(policy, || {
            calls.set(calls.get() + 1);
            let mut error = LlmError::new(ErrorKind::RateLimited, "slow down");
            error.retry_after = Some(Duration::from_secs(5));
            std::future::ready(Err(error))
        })
        .await;
        assert!(ended.is_err());
        assert_eq!(calls.get(), 3);
        assert!(started.elapsed() >= Duration::from_secs(10));
    }
}
