//! Trains LoRA adapters on published datasets and merges them into full checkpoints.
//!
//! One `train` job is one run. The handler reads rows and reports to Postgres; a blocking thread owns the model and does
//! the arithmetic. What the model sees is decided by `streams` alone. A run that is interrupted goes on from its newest
//! whole checkpoint: order of the data, schedule and noise are functions of the step, so nothing else needs saving.

#![forbid(unsafe_code)]
#![expect(
    clippy::cast_precision_loss,
    reason = "steps, windows, frames and bytes are far below the 2^52 that f64 holds exactly"
)]

pub mod alarms;
pub mod batch;
pub mod bench;
pub mod checkpointing;
pub mod codes_cache;
mod crew;
pub mod dataset;
mod error;
mod evaluate;
pub mod export;
mod handler;
pub mod loader;
mod model;
mod numbers;
pub mod optim;
pub mod order;
pub mod plan;
mod probe;
pub mod rank;
mod relay;
mod report;
mod samples;
pub mod schedule;
mod settings;
mod shards;
mod storing;
mod summary;
mod train;
mod update;

use chassis::{Boot, Service};

pub use crew::Crew;
pub use error::TrainError;
pub use handler::TrainHandler;
pub use plan::Plan;
pub use report::{Outcome, Report};
pub use settings::{RanksSettings, TrainerSettings};
pub use train::train;

/// Builds the service; refuses to start when the device that the settings name is not there.
///
/// # Errors
/// When the settings are wrong or the device is missing.
#[expect(clippy::unused_async, reason = "the shape that chassis::run wants")]
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: TrainerSettings = boot.settings.section("trainer")?;
    let devices = settings.devices()?;
    if settings.threads > 0 {
        nn::device::set_threads(settings.threads);
    }
    tracing::info!(?devices, threads = settings.threads, nodes = settings.ranks.nodes, "training devices");
    let token = match settings.ranks.nodes {
        0 | 1 => None,
        _ => Some(ranks::Token::from_lookup(chassis::variable)?),
    };
    let crew = Crew { devices, threads: settings.threads, ranks: settings.ranks, token };
    Ok(Service::new().handle(TrainHandler { crew, strict_constants: settings.strict_constants }))
}
