//! Listening to events, for live streams.

use futures::StreamExt;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};

use crate::topology::EVENTS;
use crate::{Bus, BusError, EventEnvelope, Result};

/// A private, passing queue on the events exchange.
#[derive(Debug)]
pub struct Events {
    consumer: Consumer,
    _channel: Channel,
}

impl Bus {
    /// Starts to listen to every job event.
    ///
    /// # Errors
    /// When the broker is gone.
    pub async fn events(&self) -> Result<Events> {
        let channel = self.channel().await?;
        let consumer = self
            .within(async {
                let passing =
                    QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
                let queue = channel.queue_declare("".into(), passing, FieldTable::default()).await?;
                channel
                    .queue_bind(
                        queue.name().clone(),
                        EVENTS.into(),
                        "job.#".into(),
                        QueueBindOptions::default(),
                        FieldTable::default(),
                    )
                    .await?;
                let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
                Ok(channel
                    .basic_consume(queue.name().clone(), "".into(), options, FieldTable::default())
                    .await?)
            })
            .await?;
        Ok(Events { consumer, _channel: channel })
    }
}

impl Events {
    /// The next event; unreadable ones are passed over.
    ///
    /// # Errors
    /// When the broker is gone: subscribe again and catch up from the database.
    pub async fn next(&mut self) -> Result<EventEnvelope> {
        loop {
            let delivery = self.consumer.next().await.ok_or(BusError::Ended)??;
            match serde_json::from_slice(&delivery.data) {
                Ok(envelope) => return Ok(envelope),
                Err(error) => tracing::warn!(%error, "unreadable event"),
            }
        }
    }
}
