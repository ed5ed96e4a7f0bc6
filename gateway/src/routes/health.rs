//! Liveness and readiness of the public listener.

use std::time::Duration;

use actix_web::{HttpResponse, get};
use rest::Problem;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::Shared;

/// Longest wait for one dependency.
const PATIENCE: Duration = Duration::from_secs(3);

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(get_liveness).service(get_readiness);
}

/// How the gateway is.
#[derive(Debug, Serialize, ToSchema)]
pub struct HealthView {
    /// `ok`, or `degraded` when the broker or Redis is away: everything works, some of it slower.
    #[schema(example = "ok")]
    status: &'static str,
    /// `ok` or `away`; only in the answer about readiness.
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<&'static str>,
    /// `ok` or `away`; only in the answer about readiness.
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<&'static str>,
}

/// Tell whether the process lives.
#[utoipa::path(operation_id = "getLiveness", tag = "health",
    responses((status = 200, description = "It does.", body = HealthView)),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/health/live")]
async fn get_liveness() -> HttpResponse {
    HttpResponse::Ok().json(HealthView { status: "ok", broker: None, redis: None })
}

/// Tell whether requests can be served.
///
/// 503 when the database is away or the process is going down.
#[utoipa::path(operation_id = "getReadiness", tag = "health",
    responses((status = 200, description = "They can.", body = HealthView)),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/health/ready")]
async fn get_readiness(state: Shared) -> Result<HttpResponse, Problem> {
    if state.shutdown.is_cancelled() {
        return Err(Problem::unavailable("the gateway", anyhow::anyhow!("going down")));
    }
    match tokio::time::timeout(PATIENCE, state.store.check()).await {
        Ok(checked) => checked?,
        Err(_) => return Err(Problem::unavailable("the database", anyhow::anyhow!("no answer in time"))),
    }
    let broker = matches!(tokio::time::timeout(PATIENCE, state.bus.check()).await, Ok(Ok(())));
    let redis = state.registry.check().await;
    let word = |ok| Some(if ok { "ok" } else { "away" });
    let status = if broker && redis { "ok" } else { "degraded" };
    Ok(HttpResponse::Ok().json(HealthView { status, broker: word(broker), redis: word(redis) }))
}
