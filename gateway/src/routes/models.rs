//! Models: registered from the import folder, or merged by runs.

mod import;

use actix_web::{HttpRequest, HttpResponse, get, post};
use chrono::{DateTime, Utc};
use domain::dataset::DatasetFile;
use domain::{ErrorCode, ModelId, RunId};
use rest::once::Created;
use rest::{Asked, List, PageQuery, Posted, Problem};
use serde::{Deserialize, Serialize};
use store::models::{Model, NewModel};
use store::{PageRequest, Store, StoreError, Tx};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::state::Shared;
use rest::names;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(create_model).service(list_models).service(get_model);
}

/// Request to register a model.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "tiny", "path": "tiny"}))]
pub struct CreateModel {
    /// Unique.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// Folder below the server's import folder with `config.json`, the weights and the tokenizer.
    path: String,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelView {
    id: ModelId,
    /// Always `model`.
    #[schema(example = "model")]
    object: &'static str,
    #[schema(example = "tiny")]
    name: String,
    /// `base`, `merged` or `adapter`.
    #[schema(example = "base")]
    kind: String,
    files: Vec<DatasetFile>,
    /// The base of a merged model or an adapter.
    base_id: Option<ModelId>,
    /// The run that made it.
    run_id: Option<RunId>,
    created_at: DateTime<Utc>,
}

impl From<Model> for ModelView {
    fn from(m: Model) -> Self {
        Self {
            id: m.id,
            object: "model",
            name: m.name,
            kind: m.kind,
            files: m.files,
            base_id: m.base_id,
            run_id: m.run_id,
            created_at: m.created_at,
        }
    }
}

/// Fails when a model has the name: runs give theirs to the merged model.
pub(super) async fn name_is_free(store: &Store, name: &str) -> Result<(), Problem> {
    match store::models::find(store, name).await {
        Ok(model) => Err(Problem::new(ErrorCode::NameTaken, format!("model {} has this name", model.id))),
        Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The model of a session that names none: the newest merged one, else the newest base.
pub(crate) async fn default_model(store: &Store) -> Result<Option<Model>, Problem> {
    let mut base = None;
    let mut page = PageRequest { limit: 100, after: None, descending: true };
    loop {
        let models = store::models::list(store, page).await?;
        page.after = models.items.last().map(|m| m.id.uuid());
        for model in models.items {
            match model.kind.as_str() {
                "merged" => return Ok(Some(model)),
                "base" if base.is_none() => base = Some(model),
                _ => {}
            }
        }
        if !models.has_more {
            return Ok(base);
        }
    }
}

/// Names to offer when one is unknown.
pub(crate) async fn some_names(store: &Store) -> Result<String, Problem> {
    let page = PageRequest { limit: 20, after: None, descending: true };
    let models = store::models::list(store, page).await?;
    let names: Vec<_> = models.items.into_iter().map(|m| m.name).collect();
    Ok(if names.is_empty() {
        "no model is registered yet".into()
    } else {
        format!("there are {}", names.join(", "))
    })
}

/// Register a model.
///
/// The folder is verified (every tensor's name and shape), copied into the artifact store and hashed.
#[utoipa::path(operation_id = "createModel", tag = "models", request_body = CreateModel,
    responses((status = 201, description = "The model can be used.", body = ModelView)),
    extensions(("x-required-scope" = json!("models:write"))))]
#[post("/v1/models")]
async fn create_model(state: Shared, posted: Posted<CreateModel>) -> Result<HttpResponse, Problem> {
    // A task of its own: a client that leaves during a long copy must not leave half a model behind.
    let task = actix_web::rt::spawn(register_model(state, posted));
    task.await.unwrap_or_else(|error| Err(Problem::internal(error)))
}

async fn register_model(state: Shared, posted: Posted<CreateModel>) -> Result<HttpResponse, Problem> {
    let id = ModelId::generate();
    let prefix = format!("models/{id}");
    let prepare = async |body: CreateModel| {
        names::check(&body.name, Vec::new())?;
        name_is_free(&state.store, &body.name).await?;
        let files = import::import(&state, &body.path, &prefix).await?;
        Ok((body.name, files))
    };
    let write = async |tx: &mut Tx, (name, files): (String, Vec<DatasetFile>)| {
        let new =
            NewModel { id, name, kind: "base", prefix: prefix.clone(), files, base_id: None, run_id: None };
        store::models::insert(tx, &new).await?;
        let view = ModelView {
            id,
            object: "model",
            name: new.name,
            kind: new.kind.into(),
            files: new.files,
            base_id: None,
            run_id: None,
            created_at: store::transaction_time(tx).await?,
        };
        Ok(Created { location: format!("/v1/models/{id}"), view })
    };
    let answer = posted.once(&state.store, &[], prepare, write).await;
    // Whoever did not become a row leaves no files: a failed check, a lost race, a replay.
    if matches!(store::models::get(&state.store, id).await, Err(StoreError::NotFound { .. }))
        && let Err(error) = state.artifacts.delete_prefix(&prefix).await
    {
        tracing::warn!(%error, %prefix, "cannot remove the files of a refused model");
    }
    answer
}

/// List models.
#[utoipa::path(operation_id = "listModels", tag = "models", params(PageQuery),
    responses((status = 200, description = "A page of models.", body = List<ModelView>)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/models")]
async fn list_models(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::models::list(&state.store, page.0.request(ModelId::uuid)?).await?;
    let views = page.items.into_iter().map(ModelView::from).collect();
    Ok(List::page(views, |v: &ModelView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a model.
#[utoipa::path(operation_id = "getModel", tag = "models", params(("id" = String, Path, description = "Id or name of the model.", example = "tiny")),
    responses((status = 200, description = "The model.", body = ModelView)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/models/{id}")]
async fn get_model(state: Shared, req: HttpRequest) -> Result<HttpResponse, Problem> {
    let id = req.match_info().get("id").filter(|id| !id.contains('\0')).unwrap_or("");
    Ok(HttpResponse::Ok().json(ModelView::from(store::models::find(&state.store, id).await?)))
}
