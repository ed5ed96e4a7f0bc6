//! What every service shares, so that each of them is its own work and nothing else.
//!
//! `run(name, build)` loads settings, starts telemetry, opens the store, the bus and the artifacts, lets the service say
//! what it does ([`Service`]), and keeps it going until SIGTERM: workers, the relay from outbox to bus, the sweeper, and
//! the internal listener for health and metrics.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod handler;
mod health;
mod heartbeat;
mod relay;
mod run;
pub mod settings;
mod sweeper;
pub mod telemetry;
pub mod testing;
mod worker;

pub use handler::{JobContext, JobError, JobHandler, Stop};
pub use health::ReadyCheck;
pub use run::{Boot, Service, run, run_tool};
pub use settings::{Settings, variable};
pub use worker::Worker;
pub use {
    async_trait::async_trait, secrecy, store::completion::Completion, tokio_util::sync::CancellationToken,
};
