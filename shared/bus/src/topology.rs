//! Exchanges and queues: one `declare`, run on every new connection.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

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

/// Declares everything; saying it again changes nothing.
pub(crate) async fn declare(channel: &Channel) -> Result<()> {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    for (name, kind) in
        [(JOBS, ExchangeKind::Direct), (EVENTS, ExchangeKind::Topic), (DEAD, ExchangeKind::Fanout)]
    {
        channel.exchange_declare(name.into(), kind, durable, FieldTable::default()).await?;
    }
    let keep = QueueDeclareOptions { durable: true, ..Default::default() };
    let mut bounded = FieldTable::default();
    bounded.insert("x-max-length".into(), AMQPValue::LongInt(DEAD_MAX));
    channel.queue_declare(DEAD.into(), keep, bounded).await?;
    channel
        .queue_bind(DEAD.into(), DEAD.into(), "".into(), QueueBindOptions::default(), FieldTable::default())
        .await?;
    for kind in JobKind::ALL {
        declare_queue(channel, kind).await?;
    }
    Ok(())
}

/// Declares and binds the queue of one kind.
pub(crate) async fn declare_queue(channel: &Channel, kind: JobKind) -> Result<()> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(DEAD.into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(20));
    let keep = QueueDeclareOptions { durable: true, ..Default::default() };
    let name = queue(kind);
    channel.queue_declare(name.as_str().into(), keep, arguments).await?;
    channel
        .queue_bind(
            name.as_str().into(),
            JOBS.into(),
            kind.as_str().into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await?;
    Ok(())
}
