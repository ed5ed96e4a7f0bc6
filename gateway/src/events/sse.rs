//! The history of one job as a stream of server-sent events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::{Error, HttpResponse};
use bytes::Bytes;
use chassis::CancellationToken;
use domain::JobId;
use domain::event::JobEvent;
use futures::Stream;
use store::Store;
use tokio::sync::broadcast;

use super::hub::Hub;
use crate::state::State;

/// Events read at once.
const BATCH: i64 = 100;

/// Answers with the events after `seq`, then those to come, until the job is over.
#[must_use]
pub fn answer(state: &State, job: JobId, seq: i64) -> HttpResponse {
    let follow = Follow {
        store: state.store.clone(),
        hub: Arc::clone(&state.hub),
        // Subscribed before the first read: nothing falls between.
        news: state.hub.subscribe(),
        job,
        seq,
        heartbeat: Duration::from_secs(state.gateway.sse_heartbeat_seconds.clamp(1, 15)),
        shutdown: state.shutdown.clone(),
        ready: VecDeque::from([Bytes::from_static(b"retry: 2000\n\n")]),
        over: false,
    };
    HttpResponse::Ok()
        .content_type("text/event-stream; charset=utf-8")
        .insert_header(("x-accel-buffering", "no"))
        .streaming(follow.into_stream())
}

struct Follow {
    store: Store,
    hub: Arc<Hub>,
    news: broadcast::Receiver<JobId>,
    job: JobId,
    /// Last event written.
    seq: i64,
    heartbeat: Duration,
    shutdown: CancellationToken,
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Follow {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Error>> {
        futures::stream::unfold(self, |mut follow| async move {
            let chunk = follow.next().await?;
            Some((Ok(chunk), follow))
        })
    }

    /// The next piece of the stream. Nothing is read while the client does not take what is there.
    async fn next(&mut self) -> Option<Bytes> {
        let quiet_since = Instant::now();
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            if self.over || self.shutdown.is_cancelled() {
                return None;
            }
            if self.read().await {
                continue;
            }
            let left = self.heartbeat.saturating_sub(quiet_since.elapsed());
            if left.is_zero() {
                return Some(Bytes::from_static(b": still here\n\n"));
            }
            self.wait(left.min(self.hub.patience())).await;
        }
    }

    /// Reads what is new; false when nothing is.
    async fn read(&mut self) -> bool {
        let events = match store::events::after(&self.store, self.job, self.seq, BATCH).await {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, job.id = %self.job, "a stream cannot read the history yet");
                return false;
            }
        };
        for event in &events {
            self.seq = event.seq;
            self.ready.push_back(render(event));
            if is_last(event) {
                self.ready.push_back(Bytes::from_static(DONE));
                self.over = true;
            }
        }
        if events.is_empty() {
            self.over = self.is_finished().await;
            if self.over {
                self.ready.push_back(Bytes::from_static(DONE));
            }
        }
        !events.is_empty() || self.over
    }

    /// Whether the job is over and its last event was given before: a client that resumes there waits for nothing.
    async fn is_finished(&self) -> bool {
        match store::jobs::get(&self.store, self.job).await {
            Ok(job) => job.state.is_terminal() && job.last_seq <= self.seq,
            Err(_) => false,
        }
    }

    /// Until this job has news, the time is up, or the process goes down.
    async fn wait(&mut self, time: Duration) {
        let news = async {
            loop {
                match self.news.recv().await {
                    Ok(job) if job != self.job => {}
                    // Lagged: some news were lost, perhaps ours.
                    _ => return,
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep(time) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

/// Says that no event follows.
const DONE: &[u8] = b"event: done\ndata: {}\n\n";

/// Whether no event follows.
fn is_last(event: &JobEvent) -> bool {
    matches!(event.kind.as_str(), "job.succeeded" | "job.failed" | "job.cancelled")
}

fn render(event: &JobEvent) -> Bytes {
    let data = serde_json::to_string(event).expect("events are plain JSON");
    Bytes::from(format!("id: {}\nevent: {}\ndata: {data}\n\n", event.seq, event.kind))
}
