//! Plays held-out dialogues against served models and compares the results pairwise.
//!
//! It never loads a model: it opens sessions through the gateway as any client does, so what is measured is what is
//! served. [`stats`], [`metrics`] and [`report`] are pure; the two handlers do the I/O.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod compare;
pub mod comparison;
mod drive;
mod evaluate;
#[cfg(test)]
mod golden;
mod losses;
pub mod metrics;
pub mod report;
mod scenario;
mod settings;
pub mod stats;

use chassis::secrecy::ExposeSecret;
use chassis::{Boot, Service};
use client::Client;

pub use compare::CompareHandler;
pub use evaluate::EvaluateHandler;
pub use settings::{Auth, EvaluationSettings};

/// Builds the service.
///
/// # Errors
/// When the settings are wrong, or there is no key for sessions.
#[expect(clippy::unused_async, reason = "the shape that chassis::run wants")]
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: EvaluationSettings = boot.settings.section("evaluation")?;
    let auth: Auth = boot.settings.section("auth")?;
    let key = settings.session_key(&auth)?;
    let client = Client::new(&settings.gateway_url, key.expose_secret())?;
    Ok(Service::new().handle(EvaluateHandler { client }).handle(CompareHandler))
}
