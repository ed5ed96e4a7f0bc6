//! Following a job to its end: a stream of events, taken up again where it broke, or plain asking where there is none.

use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use domain::JobId;
use domain::event::JobEvent;
use domain::job::JobState;

use crate::error::{ClientError, Result};
use crate::http::Client;
use crate::sse::SseParser;
use crate::views::JobView;

/// How to wait.
#[derive(Debug, Clone)]
pub struct WaitOptions {
    /// Give up after this.
    pub timeout: Duration,
    /// Time between questions where no stream is to be had.
    pub poll: Duration,
    /// Streams that give nothing before plain asking takes over.
    pub stream_failures: u32,
    /// A stream without a byte (events or comments) for this long is opened anew.
    pub stream_silence: Duration,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(24 * 3600),
            poll: Duration::from_millis(500),
            stream_failures: 3,
            stream_silence: Duration::from_secs(45),
        }
    }
}

/// How a stream ended.
enum StreamEnd {
    /// The server said that nothing follows.
    Done,
    /// It broke, after this many events.
    Broken(u32),
}

impl Client {
    /// Waits for the end of a job; every event is shown once, in order.
    ///
    /// # Errors
    /// `JobFailed`, `JobCancelled`, `TimedOut`; see [`ClientError`].
    pub async fn wait_job(
        &self,
        id: JobId,
        options: &WaitOptions,
        mut on_event: impl FnMut(&JobEvent),
    ) -> Result<JobView> {
        let waited = tokio::time::timeout(options.timeout, self.follow(id, options, &mut on_event)).await;
        let job =
            waited.map_err(|_| ClientError::TimedOut { what: id.to_string(), after: options.timeout })??;
        outcome(job)
    }

    async fn follow(
        &self,
        id: JobId,
        options: &WaitOptions,
        on_event: &mut impl FnMut(&JobEvent),
    ) -> Result<JobView> {
        let (mut seen, mut failures) = (0, 0);
        while failures < options.stream_failures {
            let begun = Instant::now();
            match self.follow_stream(id, options, &mut seen, on_event).await {
                Ok(StreamEnd::Done) => break,
                Ok(StreamEnd::Broken(0)) | Err(ClientError::Unreachable { .. }) => failures += 1,
                Ok(StreamEnd::Broken(_)) => failures = 0,
                Err(ClientError::Problem(p)) if p.status == 429 || p.status >= 500 => failures += 1,
                Err(error) => return Err(error),
            }
            // Not faster than one stream per interval, however fast they break.
            tokio::time::sleep(options.poll.saturating_sub(begun.elapsed())).await;
        }
        loop {
            let job = self.job(id).await?;
            if job.state.is_terminal() || job.state == JobState::Paused {
                return Ok(job);
            }
            tokio::time::sleep(options.poll).await;
        }
    }

    async fn follow_stream(
        &self,
        id: JobId,
        options: &WaitOptions,
        seen: &mut i64,
        on_event: &mut impl FnMut(&JobEvent),
    ) -> Result<StreamEnd> {
        let after = (*seen > 0).then_some(*seen);
        let response = self.open_stream(&format!("/v1/jobs/{id}/events"), after).await?;
        let (mut bytes, mut parser, mut count) = (response.bytes_stream(), SseParser::default(), 0);
        while let Ok(Some(Ok(chunk))) = tokio::time::timeout(options.stream_silence, bytes.next()).await {
            for event in parser.push(&chunk) {
                if event.event == "done" {
                    return Ok(StreamEnd::Done);
                }
                let Ok(event) = serde_json::from_str::<JobEvent>(&event.data) else { continue };
                if event.seq > *seen {
                    *seen = event.seq;
                    count += 1;
                    on_event(&event);
                }
            }
        }
        Ok(StreamEnd::Broken(count))
    }
}

/// A job's end as a result.
fn outcome(job: JobView) -> Result<JobView> {
    match job.state {
        JobState::Failed => {
            let (code, detail) = job.error.map_or_else(
                || ("internal".to_owned(), "the server gave no reason".to_owned()),
                |failure| (failure.code, failure.detail),
            );
            Err(ClientError::JobFailed { job: job.id, code, detail })
        }
        JobState::Cancelled => Err(ClientError::JobCancelled { job: job.id }),
        _ => Ok(job),
    }
}
