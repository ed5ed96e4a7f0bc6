//! The operations, one file per noun. Request and response shapes live beside their handlers.

pub mod api_keys;
mod archive;
pub mod chat;
pub mod comparisons;
pub mod control;
pub mod datasets;
pub mod docs;
pub mod evaluations;
pub mod health;
pub mod jobs;
pub mod models;
pub mod runs;
pub mod serving;
pub mod sessions;
pub mod voices;

use domain::JobId;
use domain::job::JobSpec;
use rest::Trace;
use store::jobs::NewJob;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::State;

/// Every documented operation.
pub fn register(config: &mut ServiceConfig) {
    datasets::register(config);
    jobs::register(config);
    models::register(config);
    runs::register(config);
    serving::register(config);
    voices::register(config);
    sessions::register(config);
    control::register(config);
    library::register(config);
    evaluations::register(config);
    comparisons::register(config);
    api_keys::register(config);
    chat::register(config);
    health::register(config);
    docs::register_document(config);
}

/// A job that needs no other.
fn new_job(state: &State, trace: &Trace, spec: JobSpec) -> NewJob {
    NewJob {
        id: JobId::generate(),
        spec,
        needs: Vec::new(),
        max_attempts: state.max_attempts,
        traceparent: trace.traceparent(),
    }
}
