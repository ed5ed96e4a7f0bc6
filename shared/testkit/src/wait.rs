//! Waiting by condition, never by sleeping a guessed time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL: Duration = Duration::from_millis(20);

/// Polls until `condition` holds. The error names `what` and the time that was given.
pub async fn wait_until<F>(what: &str, deadline: Duration, mut condition: F) -> Result<()>
where
    F: AsyncFnMut() -> bool,
{
    wait_for(what, deadline, async || condition().await.then_some(())).await
}

/// Polls until `probe` returns a value. The error names `what` and the time that was given.
pub async fn wait_for<T, F>(what: &str, deadline: Duration, mut probe: F) -> Result<T>
where
    F: AsyncFnMut() -> Option<T>,
{
    let start = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return Ok(value);
        }
        if start.elapsed() >= deadline {
            bail!("waited {deadline:?} in vain for: {what}");
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_ends_the_wait() -> Result<()> {
        let mut calls = 0;
        let mut next = || {
            calls += 1;
            calls
        };
        let got =
            wait_for("the third call", Duration::from_secs(5), async || Some(next()).filter(|n| *n == 3))
                .await?;
        assert_eq!(got, 3);
        Ok(())
    }

    #[tokio::test]
    async fn a_wait_in_vain_names_what_it_waited_for() {
        let error = wait_until("a blue moon", Duration::from_millis(30), async || false).await;
        let text = error.expect_err("the condition never holds").to_string();
        assert!(text.contains("a blue moon") && text.contains("30ms"), "{text}");
    }
}
