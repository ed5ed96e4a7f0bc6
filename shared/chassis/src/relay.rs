//! From the outbox to the broker. Runs in every process; rows are locked, so one message is sent by one relay.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use bus::{Bus, BusError, EventEnvelope, JobEnvelope};
use store::Store;
use store::outbox::{self, OutboxMessage};

const BATCH: i64 = 100;

/// Relays until shutdown: at each commit that wrote an outbox row, and at least once a second.
pub(crate) async fn run(store: Store, bus: Arc<Bus>, shutdown: CancellationToken) {
    let mut listener = None;
    while !shutdown.is_cancelled() {
        match drain(&store, &bus).await {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, "relay waits");
                shutdown.run_until_cancelled(tokio::time::sleep(Duration::from_millis(500))).await;
            }
        }
        if listener.is_none() {
            listener = store.outbox_listener().await.ok();
        }
        let wake = async {
            match listener.as_mut() {
                Some(l) => l.wait().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            alive = wake => if !alive { listener = None },
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

async fn drain(store: &Store, bus: &Bus) -> anyhow::Result<()> {
    loop {
        let mut tx = store.begin().await?;
        let batch = outbox::take_batch(&mut tx, BATCH).await?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut sent = Vec::with_capacity(batch.len());
        let mut failed = None;
        for message in &batch {
            match send(bus, message).await {
                Ok(()) => sent.push(message.id),
                Err(SendError::Unreadable(error)) => {
                    tracing::error!(%error, outbox.id = message.id, "unreadable outbox row is dropped");
                    sent.push(message.id);
                }
                // One queue is missing or broken: the others still get their bells.
                Err(SendError::Bus(error @ BusError::Unroutable { .. })) => failed = Some(error),
                Err(SendError::Bus(error)) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        outbox::mark_sent(&mut tx, &sent).await?;
        tx.commit().await?;
        metrics::counter!("ppx_outbox_sent_total").increment(sent.len() as u64);
        if let Some(error) = failed {
            return Err(error.into());
        }
    }
}

enum SendError {
    Unreadable(anyhow::Error),
    Bus(BusError),
}

async fn send(bus: &Bus, message: &OutboxMessage) -> Result<(), SendError> {
    let sent = match read(message).map_err(SendError::Unreadable)? {
        Envelope::Job(envelope) => bus.publish_job(&message.routing_key, &envelope).await,
        Envelope::Event(envelope) => bus.publish_event(&message.routing_key, &envelope).await,
    };
    sent.map_err(SendError::Bus)
}

enum Envelope {
    Job(JobEnvelope),
    Event(EventEnvelope),
}

fn read(message: &OutboxMessage) -> anyhow::Result<Envelope> {
    let text = |field: &str| message.payload.get(field).and_then(|v| v.as_str());
    let job_id = text("job_id").context("outbox row without job_id")?.parse()?;
    if message.exchange == "jobs" {
        let kind = text("kind").context("outbox row without kind")?.parse().map_err(anyhow::Error::msg)?;
        let traceparent = text("traceparent").map(str::to_owned);
        Ok(Envelope::Job(JobEnvelope::V1 { job_id, kind, traceparent }))
    } else {
        let seq = message
            .payload
            .get("seq")
            .and_then(serde_json::Value::as_i64)
            .context("outbox row without seq")?;
        Ok(Envelope::Event(EventEnvelope::V1 { job_id, seq }))
    }
}
