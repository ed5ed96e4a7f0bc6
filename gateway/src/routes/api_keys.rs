//! API keys: made, shown once, listed, revoked.

use actix_web::{HttpRequest, HttpResponse, delete, get, post};
use chrono::{DateTime, Utc};
use domain::ApiKeyId;
use domain::run::FieldFault;
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem};
use serde::{Deserialize, Serialize};
use store::Tx;
use store::api_keys::ApiKey;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::auth::{Scope, key};
use crate::state::Shared;
use rest::names;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(create_api_key).service(list_api_keys).service(get_api_key).service(revoke_api_key);
}

/// Request to make a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "dashboard", "scopes": ["jobs:read", "runs:read"]}))]
pub struct CreateApiKey {
    /// For people.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// What it may do; at least one.
    #[schema(min_items = 1)]
    scopes: Vec<Scope>,
}

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct ApiKeyView {
    id: ApiKeyId,
    /// Always `api_key`.
    #[schema(example = "api_key")]
    object: &'static str,
    #[schema(example = "dashboard")]
    name: String,
    /// Public part of the key.
    key_id: String,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    /// Last use, to the minute.
    last_used_at: Option<DateTime<Utc>>,
}

/// A new API key, with its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedApiKeyView {
    id: ApiKeyId,
    /// Always `api_key`.
    #[schema(example = "api_key")]
    object: &'static str,
    name: String,
    /// Public part of the key.
    key_id: String,
    scopes: Vec<Scope>,
    created_at: DateTime<Utc>,
    /// The key. Shown once: `null` when the answer is repeated for an `Idempotency-Key`.
    key: Option<String>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(k: ApiKey) -> Self {
        Self {
            id: k.id,
            object: "api_key",
            name: k.name,
            key_id: k.key_id,
            scopes: k.scopes,
            created_at: k.created_at,
            revoked_at: k.revoked_at,
            last_used_at: k.last_used_at,
        }
    }
}

/// Create an API key.
///
/// The key is in the answer and nowhere else: only its hash is kept.
#[utoipa::path(operation_id = "createApiKey", tag = "api-keys", request_body = CreateApiKey,
    responses((status = 201, description = "The key, shown once.", body = CreatedApiKeyView)),
    extensions(("x-required-scope" = json!("admin"))))]
#[post("/v1/api-keys")]
async fn create_api_key(state: Shared, posted: Posted<CreateApiKey>) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateApiKey| {
        let mut faults = Vec::new();
        if body.scopes.is_empty() {
            let known: Vec<_> = Scope::ALL.iter().map(|s| s.as_str()).collect();
            let detail = format!("must name at least one of {}", known.join(", "));
            faults.push(FieldFault { pointer: "/scopes".into(), detail });
        }
        names::check(&body.name, faults)?;
        Ok(body)
    };
    let write = async |tx: &mut Tx, body: CreateApiKey| {
        let (id, new) = (ApiKeyId::generate(), key::generate(&state.auth.key_environment));
        let scopes: Vec<String> = body.scopes.iter().map(|s| s.as_str().to_owned()).collect();
        store::api_keys::insert(tx, id, &body.name, &new.key_id, &key::hash(&new.text), &scopes).await?;
        let view = CreatedApiKeyView {
            id,
            object: "api_key",
            name: body.name,
            key_id: new.key_id,
            scopes: body.scopes,
            created_at: store::transaction_time(tx).await?,
            key: Some(new.text),
        };
        Ok(Created { location: format!("/v1/api-keys/{id}"), view })
    };
    posted.once(&state.store, &["key"], prepare, write).await
}

/// List API keys.
#[utoipa::path(operation_id = "listApiKeys", tag = "api-keys", params(PageQuery),
    responses((status = 200, description = "A page of keys, without their secrets.", body = List<ApiKeyView>)),
    extensions(("x-required-scope" = json!("admin"))))]
#[get("/v1/api-keys")]
async fn list_api_keys(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::api_keys::list(&state.store, page.0.request(ApiKeyId::uuid)?).await?;
    let views = page.items.into_iter().map(ApiKeyView::from).collect();
    Ok(List::page(views, |v: &ApiKeyView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get an API key.
#[utoipa::path(operation_id = "getApiKey", tag = "api-keys", params(("id" = ApiKeyId, Path, description = "The key.")),
    responses((status = 200, description = "The key, without its secret.", body = ApiKeyView)),
    extensions(("x-required-scope" = json!("admin"))))]
#[get("/v1/api-keys/{id}")]
async fn get_api_key(state: Shared, id: Id<ApiKeyId>) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(ApiKeyView::from(store::api_keys::get(&state.store, id.0).await?)))
}

/// Revoke an API key.
///
/// It stops working here at once and in every other gateway within five seconds. Repeating the call is safe.
#[utoipa::path(operation_id = "revokeApiKey", tag = "api-keys", params(("id" = ApiKeyId, Path, description = "The key.")),
    responses((status = 200, description = "The key as it is now.", body = ApiKeyView)),
    extensions(("x-required-scope" = json!("admin"))))]
#[delete("/v1/api-keys/{id}")]
async fn revoke_api_key(state: Shared, id: Id<ApiKeyId>) -> Result<HttpResponse, Problem> {
    store::api_keys::revoke(&state.store, id.0).await?;
    state.keyring.forget();
    Ok(HttpResponse::Ok().json(ApiKeyView::from(store::api_keys::get(&state.store, id.0).await?)))
}
