//! Writes synthetic dialogues from a domain pack.
//!
//! A generate job names a dataset and a range of its design rows. The design, and from it every dialogue, follow from
//! the pack and the dataset's specification alone: any worker can take any shard, and a second attempt writes the same.
//! Records that break a rule are kept as invalid, with every rule they break: people see and repair them, and they are
//! never rendered. This service knows no audio.

#![forbid(unsafe_code)]

pub mod error;
pub mod handler;
pub mod packs;
pub mod settings;
pub mod write;

pub use drafting::{brief, claims, grammar, sampler, validate};

use chassis::{Boot, Service};

use crate::handler::GenerateHandler;
use crate::packs::Packs;
use crate::settings::DatagenSettings;
use crate::write::Writer;

/// Builds the service from its settings.
///
/// # Errors
/// When the settings or a domain pack are wrong.
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: DatagenSettings = boot.settings.section("datagen")?;
    let writer = match settings.writer {
        offline if offline.model.is_empty() => None,
        with_model => Some(Writer::new(with_model, &chrono::Utc::now().date_naive().to_string())?),
    };
    let packs = tokio::task::spawn_blocking(move || Packs::open(&settings.domains_dir)).await??;
    Ok(Service::new().handle(GenerateHandler::new(packs).with_writer(writer)))
}
