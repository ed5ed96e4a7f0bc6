//! Packs that people add: checked, stored as drafts, activated, retired.

use actix_web::{HttpRequest, HttpResponse, delete, get, post};
use domain::ErrorCode;
use domain::pack::DomainPack;
use rest::once::Created;
use rest::{Caller, Posted, Problem};
use serde::Deserialize;
use serde_json::Value;
use store::Tx;
use store::domains::DomainState;
use utoipa::ToSchema;

use super::{DomainView, built_in, find, view};
use crate::{Shared, State};

/// Request to add a version of a domain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"pack": {"id": "dental_reminders", "version": 1, "short": "dent", "title": "Reminders of a dental practice"}}))]
pub struct CreateDomain {
    /// The pack, as `GET /v1/domain-schema` describes it.
    #[schema(value_type = Object)]
    pub(super) pack: Value,
}

/// Reads a pack of a request: every fault of it, below `/pack`; then whether it can be spoken.
pub(super) async fn checked(pack: Value) -> Result<DomainPack, Problem> {
    let pack = DomainPack::from_json(pack)
        .map_err(|faults| Problem::fields(rest::names::below("/pack", faults.0)))?;
    let tried = tokio::task::spawn_blocking(move || drafting::trial::try_out(&pack).map(|()| pack));
    tried.await.map_err(Problem::internal)?.map_err(|error| Problem::field("/pack", error.to_string()))
}

/// Add a domain, or the next version of one.
///
/// The pack is checked as one that ships: against the schema, for contradictions, and by writing dialogues with it. It is
/// stored as a draft; new datasets use it once it is activated. A version never changes.
#[utoipa::path(operation_id = "createDomain", tag = "datasets", request_body = CreateDomain,
    responses((status = 201, description = "The draft.", body = DomainView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/domains")]
pub(super) async fn create_domain(
    state: Shared,
    caller: Caller,
    posted: Posted<CreateDomain>,
) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateDomain| {
        let pack = checked(body.pack).await?;
        if built_in(&pack.id).is_some_and(|ships| pack.version <= ships.version) {
            let detail = format!("{} ships in this version; add a higher one", pack.id);
            return Err(Problem::field("/pack/version", detail));
        }
        let by = store::api_keys::get(&state.store, caller.key).await?.name;
        Ok((pack, by))
    };
    let write = async |tx: &mut Tx, (pack, by): (DomainPack, String)| {
        store::domains::insert(tx, &pack, &by).await?;
        let location = format!("/v1/domains/{}?version={}", pack.id, pack.version);
        Ok(Created { location, view: view(&pack, DomainState::Draft, Some(by)) })
    };
    posted.once(&state.store, &[], prepare, write).await
}

/// Which version to use.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"version": 2}))]
pub struct ActivateDomain {
    /// Version that new datasets use from now on.
    #[schema(minimum = 1)]
    version: u32,
}

/// Activate a version of a domain.
///
/// New datasets use it; those that exist keep the version they were made with.
#[utoipa::path(operation_id = "activateDomain", tag = "datasets", request_body = ActivateDomain,
    params(("id" = String, Path, description = "The domain.", example = "dental_reminders")),
    responses((status = 200, description = "The version that is used now.", body = DomainView)),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[post("/v1/domains/{id}/activate")]
pub(super) async fn activate_domain(
    state: Shared,
    req: HttpRequest,
    posted: Posted<ActivateDomain>,
) -> Result<HttpResponse, Problem> {
    let id = path_id(&req);
    let mut tx = state.store.begin().await?;
    store::domains::activate(&mut tx, &id, posted.body.version).await?;
    store::commit(tx).await?;
    found(&state, &id).await
}

async fn found(state: &State, id: &str) -> Result<HttpResponse, Problem> {
    let (_, view): (DomainPack, DomainView) = find(state, id, None)
        .await?
        .ok_or_else(|| Problem::new(ErrorCode::NotFound, format!("there is no domain {id:?}")))?;
    Ok(HttpResponse::Ok().json(view))
}

fn path_id(req: &HttpRequest) -> String {
    req.match_info().get("id").unwrap_or("").chars().take(80).collect()
}

/// Retire a domain.
///
/// No version that was added is used for new datasets any more; where one ships under the id, that one is. Datasets keep
/// their versions.
#[utoipa::path(operation_id = "deleteDomain", tag = "datasets",
    params(("id" = String, Path, description = "The domain.", example = "dental_reminders")),
    responses((status = 204, description = "It is retired.")),
    extensions(("x-required-scope" = json!("datasets:write"))))]
#[delete("/v1/domains/{id}")]
pub(super) async fn delete_domain(state: Shared, req: HttpRequest) -> Result<HttpResponse, Problem> {
    let id = path_id(&req);
    let mut tx = state.store.begin().await?;
    let any = store::domains::retire(&mut tx, &id).await?;
    store::commit(tx).await?;
    match (any, built_in(&id)) {
        (true, _) => Ok(HttpResponse::NoContent().finish()),
        (false, Some(_)) => {
            Err(Problem::new(ErrorCode::Conflict, format!("domain {id:?} ships with the program and stays")))
        }
        (false, None) => Err(Problem::new(ErrorCode::NotFound, format!("there is no domain {id:?}"))),
    }
}

/// Get the JSON Schema of domain packs.
#[utoipa::path(operation_id = "getDomainSchema", tag = "datasets",
    responses((status = 200, description = "JSON Schema, draft 2020-12.", body = Object, content_type = "application/schema+json")),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/v1/domain-schema")]
pub(super) async fn get_domain_schema() -> HttpResponse {
    HttpResponse::Ok().content_type("application/schema+json").json(DomainPack::json_schema())
}
