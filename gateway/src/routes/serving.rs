//! What the inference processes have loaded, and how that is changed.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, get, http::Method, post};
use chassis::secrecy::ExposeSecret;
use domain::{ErrorCode, ModelId};
use rest::{List, Problem};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::{Shared, State};

/// How long a process may take to tell what it serves.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a load is waited for; it goes on afterwards.
const LOAD_PATIENCE: Duration = Duration::from_secs(20);

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_served_models).service(load_model).service(unload_model);
}

/// Where a model stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServingState {
    /// No process has it; the first session that needs it loads it.
    Unloaded,
    /// Its files are being read.
    Loading,
    /// Sessions start at once.
    Ready,
}

/// A model as the inference processes have it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServedModel {
    id: ModelId,
    /// Always `served_model`.
    #[schema(example = "served_model")]
    object: &'static str,
    state: ServingState,
    /// Of an adapter: the model it lies on.
    base_id: Option<ModelId>,
    /// Processes that have it ready.
    #[schema(example = 1)]
    processes: u32,
    /// Conversations that use it now.
    #[schema(example = 3)]
    sessions: u64,
    /// Bytes reckoned for it and its conversations, in all processes.
    memory_bytes: u64,
    /// Prompts kept ready.
    prompts_kept: u64,
    /// Conversations that started from a kept prompt.
    prompt_hits: u64,
}

impl ServedModel {
    const fn unloaded(id: ModelId) -> Self {
        Self {
            id,
            object: "served_model",
            state: ServingState::Unloaded,
            base_id: None,
            processes: 0,
            sessions: 0,
            memory_bytes: 0,
            prompts_kept: 0,
            prompt_hits: 0,
        }
    }

    fn add(&mut self, told: &Told) {
        self.state = self.state.max(told.state);
        self.base_id = self.base_id.or(told.base_id);
        self.processes += u32::from(told.state == ServingState::Ready);
        self.sessions += told.sessions;
        self.memory_bytes += told.memory_bytes;
        self.prompts_kept += told.prompts_kept;
        self.prompt_hits += told.prompt_hits;
    }
}

/// What one process says of a model.
#[derive(Debug, Deserialize)]
struct Told {
    id: ModelId,
    state: ServingState,
    base_id: Option<ModelId>,
    sessions: u64,
    memory_bytes: u64,
    prompts_kept: u64,
    prompt_hits: u64,
}

#[derive(Debug, Deserialize)]
struct Answer {
    models: Vec<Told>,
}

/// What a process says when it refuses.
#[derive(Deserialize)]
struct Refusal {
    code: ErrorCode,
    detail: String,
}

/// List served models.
///
/// What the inference processes have loaded or are loading, summed over the processes. Models that are not listed are
/// loaded by the first session that needs them.
#[utoipa::path(operation_id = "listServedModels", tag = "models",
    responses((status = 200, description = "Models and adapters that are loaded or being loaded.", body = List<ServedModel>)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/serving/models")]
async fn list_served_models(state: Shared) -> Result<HttpResponse, Problem> {
    let mut models: BTreeMap<_, ServedModel> = BTreeMap::new();
    for told in everywhere(&state).await {
        models.entry(told.id.uuid()).or_insert_with(|| ServedModel::unloaded(told.id)).add(&told);
    }
    Ok(HttpResponse::Ok().json(List::whole(models.into_values().collect::<Vec<_>>())))
}

/// Load a model.
///
/// Loads a model, or an adapter with its base, into every inference process that has not got it. Models that no session
/// uses make room. A large model may still be `loading` when this answers; repeating the call is safe.
#[utoipa::path(operation_id = "loadModel", tag = "models",
    params(("id" = String, Path, description = "Id or name of the model.", example = "tiny")),
    responses((status = 200, description = "The model as it is served now.", body = ServedModel)),
    extensions(("x-required-scope" = json!("models:write"))))]
#[post("/v1/serving/models/{id}/load")]
async fn load_model(state: Shared, req: HttpRequest) -> Result<HttpResponse, Problem> {
    change(&state, &req, "load").await
}

/// Unload a model.
///
/// Unloads a model or an adapter from every inference process. Refused while sessions use it.
#[utoipa::path(operation_id = "unloadModel", tag = "models",
    params(("id" = String, Path, description = "Id or name of the model.", example = "tiny")),
    responses((status = 200, description = "The model as it is served now.", body = ServedModel)),
    extensions(("x-required-scope" = json!("models:write"))))]
#[post("/v1/serving/models/{id}/unload")]
async fn unload_model(state: Shared, req: HttpRequest) -> Result<HttpResponse, Problem> {
    change(&state, &req, "unload").await
}

/// Asks every process; a refusal of one is the answer, after the others were asked too.
async fn change(state: &State, req: &HttpRequest, what: &str) -> Result<HttpResponse, Problem> {
    let name = req.match_info().get("id").filter(|id| !id.contains('\0')).unwrap_or("");
    let id = store::models::find(&state.store, name).await?.id;
    let path = format!("internal/models/{id}/{what}");
    let (mut refused, mut reached) = (None, false);
    for base in state.registry.candidates().await {
        match call(state, &base, Method::POST, &path, LOAD_PATIENCE).await {
            Ok(_) => reached = true,
            // It was not there: nothing to unload.
            Err(Some(problem)) if what == "unload" && problem.code() == ErrorCode::NotFound => reached = true,
            Err(Some(problem)) => refused = refused.or(Some(problem)),
            Err(None) => {}
        }
    }
    match refused {
        Some(problem) => return Err(problem),
        None if !reached => return Err(nobody()),
        None => {}
    }
    let mut model = ServedModel::unloaded(id);
    everywhere(state).await.iter().filter(|told| told.id == id).for_each(|told| model.add(told));
    Ok(HttpResponse::Ok().json(model))
}

/// What every process says; those that do not answer are left out.
async fn everywhere(state: &State) -> Vec<Told> {
    let mut all = Vec::new();
    for base in state.registry.candidates().await {
        if let Ok(answer) = call(state, &base, Method::GET, "internal/models", PATIENCE).await {
            all.extend(answer.models);
        }
    }
    all
}

fn nobody() -> Problem {
    Problem::unavailable("inference", anyhow::anyhow!("no inference process answers"))
}

/// One call of a process. The error is its refusal, or none when it cannot be reached. A load that takes longer than
/// `patience` counts as accepted.
async fn call(
    state: &State,
    base: &str,
    method: Method,
    path: &str,
    patience: Duration,
) -> Result<Answer, Option<Problem>> {
    let url = format!("{}/{path}", base.trim_end_matches('/'));
    let method = reqwest::Method::from_bytes(method.as_str().as_bytes()).map_err(|_| None)?;
    let post = method == reqwest::Method::POST;
    let request = state.http.request(method, url).timeout(patience);
    let request = request.header("x-ppx-internal", state.internal_token.expose_secret());
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) if post && error.is_timeout() => return Ok(Answer { models: Vec::new() }),
        Err(_) => return Err(None),
    };
    if answer.status().is_success() {
        return answer.json().await.map_err(|error| Some(Problem::internal(error)));
    }
    let status = answer.status();
    let told = answer
        .json::<Refusal>()
        .await
        .map_err(|_| Some(Problem::internal(anyhow::anyhow!("inference refused with status {status}"))))?;
    Err(Some(match told.code {
        ErrorCode::Unauthenticated | ErrorCode::Internal => Problem::internal(anyhow::anyhow!(told.detail)),
        code => Problem::new(code, told.detail),
    }))
}
