//! The internal listener: liveness, readiness, metrics. Loopback by default; it tells nothing secret.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};
use futures::future::BoxFuture;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use bus::Bus;
use store::Store;

use crate::settings::Health;

/// A hard dependency of a service's own: a name and a check.
#[derive(Clone)]
pub struct ReadyCheck {
    /// Shown in the answer.
    pub name: &'static str,
    /// Fails with the reason.
    pub check: Arc<dyn Fn() -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>,
}

impl std::fmt::Debug for ReadyCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadyCheck").field(&self.name).finish()
    }
}

#[derive(Clone)]
pub(crate) struct HealthState {
    pub service: &'static str,
    pub store: Store,
    pub bus: Arc<Bus>,
    pub checks: Vec<ReadyCheck>,
    pub metrics: PrometheusHandle,
    pub shutdown: CancellationToken,
}

/// Binds and serves until the returned future is dropped.
pub(crate) fn serve(settings: &Health, state: HealthState) -> anyhow::Result<actix_web::dev::Server> {
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(state.clone()))
            .route("/health/live", web::get().to(live))
            .route("/health/ready", web::get().to(ready))
            .route("/metrics", web::get().to(render))
    })
    .workers(1)
    .disable_signals()
    .bind((settings.bind.as_str(), settings.port))
    .map_err(|e| anyhow::anyhow!("cannot listen on {}:{} ([health]): {e}", settings.bind, settings.port))?
    .run();
    Ok(server)
}

async fn live(state: web::Data<HealthState>) -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "ok", "service": state.service }))
}

async fn render(state: web::Data<HealthState>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(state.metrics.render())
}

/// 503 only when a hard dependency is down or the process is going down; a missing broker is `degraded`.
async fn ready(state: web::Data<HealthState>) -> HttpResponse {
    let limit = Duration::from_secs(3);
    let mut parts = serde_json::Map::new();
    let mut ok = !state.shutdown.is_cancelled();
    let database = tokio::time::timeout(limit, state.store.check()).await;
    let told = match &database {
        Ok(Ok(())) => json!("ok"),
        Ok(Err(error)) => json!(error.to_string()),
        Err(_) => json!("no answer within 3 s"),
    };
    ok &= matches!(database, Ok(Ok(())));
    parts.insert("database".into(), told);
    let broker = tokio::time::timeout(limit, state.bus.check()).await;
    let degraded = !matches!(broker, Ok(Ok(())));
    parts.insert(
        "broker".into(),
        if degraded { json!("not reachable; jobs are found by polling") } else { json!("ok") },
    );
    for check in &state.checks {
        let told = match tokio::time::timeout(limit, (check.check)()).await {
            Ok(Ok(())) => "ok".to_owned(),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "no answer within 3 s".to_owned(),
        };
        ok &= told == "ok";
        parts.insert(check.name.into(), json!(told));
    }
    let status = match (ok, degraded, state.shutdown.is_cancelled()) {
        (_, _, true) => "stopping",
        (false, ..) => "unavailable",
        (true, true, _) => "degraded",
        (true, false, _) => "ok",
    };
    let body = json!({ "status": status, "service": state.service, "checks": parts });
    if ok { HttpResponse::Ok().json(body) } else { HttpResponse::ServiceUnavailable().json(body) }
}
