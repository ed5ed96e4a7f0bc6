//! All RabbitMQ: topology, publishing with confirms, taking one doorbell at a time, listening to events.
//!
//! The broker is a doorbell: messages carry ids, Postgres carries the work. Everything here may be lost without losing a
//! job. A connection that fails is dropped and made anew by the next call.

#![forbid(unsafe_code)]

mod connection;
pub mod envelope;
mod publish;
mod subscribe;
mod take;
mod topology;

pub use connection::Bus;
pub use envelope::{EventEnvelope, JobEnvelope};
pub use subscribe::Events;
pub use take::Doorbell;

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The URL is not one of AMQP; it is not repeated, it may hold a password.
    #[error("the AMQP URL cannot be parsed: expected amqp://user@host:port/vhost")]
    BadUrl,
    /// The broker said no, or is gone.
    #[error("broker: {0}")]
    Broker(#[from] lapin::Error),
    /// The broker did not answer in time.
    #[error("the broker did not answer within {0:?}")]
    Slow(std::time::Duration),
    /// The broker has no queue for the message.
    #[error("message with key {key:?} was not routed: {reason}")]
    Unroutable {
        /// Routing key.
        key: String,
        /// What the broker said.
        reason: String,
    },
    /// The consumer ended.
    #[error("the broker ended the consumer")]
    Ended,
    /// An envelope could not be written.
    #[error("envelope: {0}")]
    Envelope(#[from] serde_json::Error),
}

/// Short form.
pub type Result<T> = std::result::Result<T, BusError>;
