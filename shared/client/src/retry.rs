//! When and how long to wait before a request is sent again.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Exponential back-off with jitter; a `Retry-After` of the server goes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Sends of one request in all.
    pub attempts: u32,
    /// Wait before the second; doubles with each.
    pub first: Duration,
    /// Longest wait, also for a server that asks for more.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 6, first: Duration::from_millis(200), longest: Duration::from_secs(30) }
    }
}

impl RetryPolicy {
    /// Wait after the failed send number `attempt` (from 1); `None` when it was the last.
    #[must_use]
    pub fn wait(&self, attempt: u32, retry_after: Option<Duration>) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let wait = retry_after.unwrap_or_else(|| {
            let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(16));
            // Between half and all of it, so that many clients do not come back at once.
            doubled.min(self.longest).mul_f64(0.5 + 0.5 * rand::random::<f64>())
        });
        Some(wait.min(self.longest))
    }
}

/// Whether a status may go away by itself.
#[must_use]
pub(crate) const fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 502 | 503)
}

/// `Retry-After` in either of its two forms.
#[must_use]
pub(crate) fn retry_after(header: &str, now: DateTime<Utc>) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTime::parse_from_rfc2822(header).ok()?;
    Some((at.with_timezone(&Utc) - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end_with_the_last_attempt() {
        let policy = RetryPolicy {
            attempts: 4,
            first: Duration::from_millis(100),
            longest: Duration::from_millis(300),
        };
        for (attempt, most) in [(1, 100), (2, 200), (3, 300)] {
            let wait = policy.wait(attempt, None).expect("another attempt");
            assert!((most / 2..=most).contains(&wait.as_millis()), "{attempt}: {wait:?}");
        }
        assert_eq!(policy.wait(4, None), None);
        assert_eq!(policy.wait(1, Some(Duration::from_millis(10))), Some(Duration::from_millis(10)));
        assert_eq!(policy.wait(1, Some(Duration::from_secs(900))), Some(policy.longest));
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = DateTime::parse_from_rfc2822("Fri, 13 Mar 2026 10:00:00 GMT").expect("a date").to_utc();
        assert_eq!(retry_after("2", now), Some(Duration::from_secs(2)));
        assert_eq!(retry_after("Fri, 13 Mar 2026 10:00:05 GMT", now), Some(Duration::from_secs(5)));
        assert_eq!(retry_after("Fri, 13 Mar 2026 09:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
