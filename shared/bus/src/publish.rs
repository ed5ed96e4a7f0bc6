//! Publishing: persistent, confirmed, and for doorbells mandatory.

use lapin::BasicProperties;
use lapin::Confirmation;
use lapin::options::BasicPublishOptions;

use crate::topology::{EVENTS, JOBS};
use crate::{Bus, BusError, EventEnvelope, JobEnvelope, Result};

impl Bus {
    /// Rings for a job; returns once the broker has it on disk.
    ///
    /// # Errors
    /// When the broker is gone, slow, or has no queue for the kind.
    pub async fn publish_job(&self, routing_key: &str, envelope: &JobEnvelope) -> Result<()> {
        self.publish(JOBS, routing_key, true, &serde_json::to_vec(envelope)?).await
    }

    /// Announces an event; nobody listening is fine.
    ///
    /// # Errors
    /// When the broker is gone or slow.
    pub async fn publish_event(&self, routing_key: &str, envelope: &EventEnvelope) -> Result<()> {
        self.publish(EVENTS, routing_key, false, &serde_json::to_vec(envelope)?).await
    }

    async fn publish(&self, exchange: &str, key: &str, mandatory: bool, body: &[u8]) -> Result<()> {
        let channel = self.publisher().await?;
        let sent = self
            .within(async {
                let options = BasicPublishOptions { mandatory, ..Default::default() };
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_content_type("application/json".into());
                Ok(channel
                    .basic_publish(exchange.into(), key.into(), options, body, properties)
                    .await?
                    .await?)
            })
            .await;
        match sent {
            Ok(Confirmation::Ack(None) | Confirmation::NotRequested) => Ok(()),
            Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
                let reason = returned.reply_text.to_string();
                // The queue is missing: the next connection declares the topology again.
                self.forget().await;
                Err(BusError::Unroutable { key: key.into(), reason })
            }
            Ok(Confirmation::Nack(None)) => {
                Err(BusError::Unroutable { key: key.into(), reason: "refused".into() })
            }
            Err(error) => {
                self.forget().await;
                Err(error)
            }
        }
    }
}
