//! Exchanges and queues: one `declare`, run on every new connection.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ErrorKind, ExchangeKind};

use domain::job::JobKind;

use crate::Result;

/// Direct exchange of doorbells; the routing key is the job kind.
pub(crate) const JOBS: &str = "jobs";
/// Topic exchange of events; routing key `job.<kind>.<what>`.
pub(crate) const EVENTS: &str = "events";
/// Where refused messages end.
const DEAD: &str = "dead";
/// Dead letters kept for a person to look at; the oldest go first.
const DEAD_MAX: i32 = 10_000;

/// Queue of a job kind.
pub(crate) fn queue(kind: JobKind) -> String {
    format!("jobs.{}", kind.as_str())
}

/// Declares everything; saying it again changes nothing. A queue that an earlier version declared otherwise is replaced:
/// what it held are doorbells, which the sweeper rings again.
pub(crate) async fn declare(connection: &Connection) -> Result<()> {
    let mut channel = connection.create_channel().await?;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    for (name, kind) in
        [(JOBS, ExchangeKind::Direct), (EVENTS, ExchangeKind::Topic), (DEAD, ExchangeKind::Fanout)]
    {
        channel.exchange_declare(name.into(), kind, durable, FieldTable::default()).await?;
    }
    for queue in std::iter::once(Queue::dead()).chain(JobKind::ALL.map(Queue::of)) {
        match queue.declare(&channel).await {
            Err(error) if is_mismatch(&error) => {
                tracing::warn!(
                    queue = queue.name,
                    "queue was declared otherwise: deleting and declaring it again"
                );
                // The refusal closed the channel.
                channel = connection.create_channel().await?;
                channel.queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default()).await?;
                queue.declare(&channel).await?;
            }
            declared => declared?,
        }
    }
    Ok(())
}

/// Declares and binds the queue of one kind.
pub(crate) async fn declare_queue(channel: &Channel, kind: JobKind) -> Result<()> {
    Ok(Queue::of(kind).declare(channel).await?)
}

/// A durable queue and what is bound to it.
struct Queue {
    name: String,
    exchange: &'static str,
    key: &'static str,
    arguments: FieldTable,
}

impl Queue {
    fn of(kind: JobKind) -> Self {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(DEAD.into()));
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(20));
        Self { name: queue(kind), exchange: JOBS, key: kind.as_str(), arguments }
    }

    fn dead() -> Self {
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(DEAD_MAX));
        Self { name: DEAD.into(), exchange: DEAD, key: "", arguments }
    }

    async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let keep = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(self.name.as_str().into(), keep, self.arguments.clone()).await?;
        let bind = QueueBindOptions::default();
        channel
            .queue_bind(
                self.name.as_str().into(),
                self.exchange.into(),
                self.key.into(),
                bind,
                FieldTable::default(),
            )
            .await
    }
}

fn is_mismatch(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(e)
        if matches!(e.kind(), AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED)))
}
