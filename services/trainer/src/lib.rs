//! Trains LoRA adapters on published datasets and merges them into full checkpoints.
//!
//! One `train` job is one run. The handler reads rows and reports to Postgres; a blocking thread owns the model and does
//! the arithmetic. What the model sees is decided by `streams` alone. A run that is interrupted goes on from its newest
//! whole checkpoint: order of the data, schedule and noise are functions of the step, so nothing else needs saving.

#![forbid(unsafe_code)]

pub mod batch;
pub mod checkpointing;
mod error;
mod evaluate;
mod handler;
pub mod loader;
pub mod optim;
mod report;
pub mod schedule;
mod settings;
mod train;

use chassis::{Boot, Service};

pub use error::TrainError;
pub use handler::TrainHandler;
pub use report::{Outcome, Report};
pub use settings::TrainerSettings;
pub use train::{Plan, train};

/// Builds the service; refuses to start when the device that the settings name is not there.
///
/// # Errors
/// When the settings are wrong or the device is missing.
#[expect(clippy::unused_async, reason = "the shape that chassis::run wants")]
pub async fn build(boot: Boot) -> anyhow::Result<Service> {
    let settings: TrainerSettings = boot.settings.section("trainer")?;
    let device = nn::device::choose(&settings.device)?;
    if settings.threads > 0 {
        nn::device::set_threads(settings.threads);
    }
    tracing::info!(?device, threads = settings.threads, "training device");
    Ok(Service::new().handle(TrainHandler { device, strict_constants: settings.strict_constants }))
}
