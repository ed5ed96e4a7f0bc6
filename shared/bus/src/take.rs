//! Taking exactly one doorbell.
//!
//! A consumer that stays open would be handed the next doorbell while its worker is busy, and the broker closes a channel
//! whose delivery stays unacknowledged for 30 minutes. So: consume with prefetch 1, take one, cancel.

use std::time::Duration;

use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
    QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};

use domain::job::JobKind;

use crate::{Bus, BusError, JobEnvelope, Result, topology};

/// One message, unacknowledged; dropped without [`Doorbell::acknowledge`] it rings again.
#[derive(Debug)]
pub struct Doorbell {
    /// What it says.
    pub envelope: JobEnvelope,
    delivery: Delivery,
    /// Keeps the delivery's channel open.
    _channel: Channel,
}

impl Doorbell {
    /// Tells the broker that the claim has been made, or that there was nothing to claim.
    ///
    /// # Errors
    /// When the broker is gone; the message then rings again, which does no harm.
    pub async fn acknowledge(self) -> Result<()> {
        self.delivery.ack(BasicAckOptions::default()).await?;
        Ok(())
    }
}

impl Bus {
    /// Waits up to `patience` for a doorbell of this kind. Unreadable messages go to the dead letters.
    ///
    /// # Errors
    /// When the broker is gone or the queue is broken.
    pub async fn take(&self, kind: JobKind, patience: Duration) -> Result<Option<Doorbell>> {
        match self.try_take(kind, patience).await {
            Err(BusError::Broker(error)) if is_broken_queue(&error) => {
                self.forget().await;
                self.rebuild(kind).await?;
                Ok(None)
            }
            Err(error) => {
                self.forget().await;
                Err(error)
            }
            taken => taken,
        }
    }

    async fn try_take(&self, kind: JobKind, patience: Duration) -> Result<Option<Doorbell>> {
        let channel = self.channel().await?;
        let mut consumer = self.within(consume(&channel, kind)).await?;
        let taken = tokio::time::timeout(patience, consumer.next()).await;
        let tag = consumer.tag();
        match taken {
            Err(_elapsed) => {
                // Closing gives back what may have arrived in this instant.
                self.within(async { Ok(channel.close(200, "idle".into()).await?) }).await?;
                Ok(None)
            }
            Ok(None) => Err(BusError::Ended),
            Ok(Some(delivery)) => {
                let delivery = delivery?;
                self.within(async { Ok(channel.basic_cancel(tag, BasicCancelOptions::default()).await?) })
                    .await?;
                match serde_json::from_slice(&delivery.data) {
                    Ok(envelope) => Ok(Some(Doorbell { envelope, delivery, _channel: channel })),
                    Err(error) => {
                        tracing::error!(%error, job.kind = kind.as_str(), "unreadable doorbell goes to the dead letters");
                        delivery.reject(BasicRejectOptions { requeue: false }).await?;
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Deletes and declares a queue that the broker has lost: a quorum queue whose broker was killed soon after the
    /// declaration answers every consumer with 541 until it is deleted (RabbitMQ 3.10). Its doorbells are rung again by
    /// the sweeper.
    async fn rebuild(&self, kind: JobKind) -> Result<()> {
        tracing::warn!(job.kind = kind.as_str(), "queue is broken: deleting and declaring it again");
        let channel = self.channel().await?;
        self.within(async {
            let name = topology::queue(kind);
            channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await?;
            topology::declare_queue(&channel, kind).await
        })
        .await
    }
}

async fn consume(channel: &Channel, kind: JobKind) -> Result<Consumer> {
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let queue = topology::queue(kind);
    Ok(channel
        .basic_consume(
            queue.as_str().into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?)
}

fn is_broken_queue(error: &lapin::Error) -> bool {
    use lapin::protocol::{AMQPErrorKind, AMQPHardError};
    matches!(error.kind(), lapin::ErrorKind::ProtocolError(e)
        if matches!(e.kind(), AMQPErrorKind::Hard(AMQPHardError::INTERNALERROR)))
}
