//! What this process serves, and how that is changed: internal operations behind the gateway's.

use actix_web::{HttpRequest, HttpResponse, web};
use domain::{ErrorCode, ModelId};
use serde::Serialize;

use crate::problem::problem;
use crate::ws::{Refusal, Shared, check_token, trace_of};

/// Where a model stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Loading,
    Ready,
}

/// A model of this process.
#[derive(Debug, Serialize)]
struct Served {
    id: ModelId,
    state: State,
    /// Of an adapter: the model it lies on.
    base_id: Option<ModelId>,
    sessions: usize,
    memory_bytes: u64,
    prompts_kept: usize,
    prompt_bytes: u64,
    prompt_hits: u64,
}

/// Adds the operations.
pub(crate) fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/internal/models", web::get().to(list))
        .route("/internal/models/{id}/load", web::post().to(load))
        .route("/internal/models/{id}/unload", web::post().to(unload));
}

async fn list(request: HttpRequest, shared: web::Data<Shared>) -> HttpResponse {
    answer(&request, served(&request, &shared).await)
}

async fn load(request: HttpRequest, shared: web::Data<Shared>) -> HttpResponse {
    let loaded = async {
        check_token(&request, &shared)?;
        let source = shared.catalog.source(model(&request)?).await?;
        shared.engine.load(source).await?;
        served(&request, &shared).await
    };
    answer(&request, loaded.await)
}

async fn unload(request: HttpRequest, shared: web::Data<Shared>) -> HttpResponse {
    let unloaded = async {
        check_token(&request, &shared)?;
        shared.engine.unload(model(&request)?).await?;
        served(&request, &shared).await
    };
    answer(&request, unloaded.await)
}

fn model(request: &HttpRequest) -> Result<ModelId, Refusal> {
    let id = request.match_info().get("id").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "no such model"))
}

async fn served(request: &HttpRequest, shared: &Shared) -> Result<Vec<Served>, Refusal> {
    check_token(request, shared)?;
    let loaded = shared.engine.models().await?;
    let under_way = shared.engine.loading().into_iter().filter(|id| !loaded.iter().any(|m| m.id == *id));
    let loading = under_way.map(|id| Served {
        id,
        state: State::Loading,
        base_id: None,
        sessions: 0,
        memory_bytes: 0,
        prompts_kept: 0,
        prompt_bytes: 0,
        prompt_hits: 0,
    });
    let ready = loaded.iter().map(|m| Served {
        id: m.id,
        state: State::Ready,
        base_id: m.base,
        sessions: m.sessions,
        memory_bytes: m.bytes,
        prompts_kept: m.prompts,
        prompt_bytes: m.prompt_bytes,
        prompt_hits: m.prompt_hits,
    });
    Ok(ready.chain(loading).collect())
}

fn answer(request: &HttpRequest, served: Result<Vec<Served>, Refusal>) -> HttpResponse {
    match served {
        Ok(models) => HttpResponse::Ok().json(serde_json::json!({ "models": models })),
        Err(refusal) => problem(refusal.code, &refusal.detail, trace_of(request).trace_id()),
    }
}
