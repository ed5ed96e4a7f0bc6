//! Domain packs that datasets can be made from: those that ship, and those that people add.

mod edit;
mod preview;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, get};
use domain::ErrorCode;
use domain::dataset::DatasetSpec;
use domain::pack::DomainPack;
use rest::{Asked, List, Problem};
use serde::{Deserialize, Serialize};
use store::domains::{Domain, DomainState};
use utoipa::{IntoParams, ToSchema};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::{Shared, State};

static PACKS: LazyLock<Vec<(String, DomainPack)>> = LazyLock::new(domain::pack::built_in);

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(list_domains)
        .service(edit::create_domain)
        .service(edit::get_domain_schema)
        .service(preview::preview_domain)
        .service(get_domain)
        .service(get_domain_pack)
        .service(edit::activate_domain)
        .service(edit::delete_domain);
}

/// A subject to make dialogues about.
#[derive(Debug, Serialize, ToSchema)]
pub struct DomainView {
    #[schema(example = "insurance_brokerage")]
    id: String,
    /// Always `domain`.
    #[schema(example = "domain")]
    object: &'static str,
    title: String,
    /// Counted up with every change.
    version: u32,
    /// `active` is what new datasets use; a `draft` waits for a person.
    state: DomainState,
    /// Whether it ships with the program.
    is_built_in: bool,
    /// Name of the API key that added it; none when it ships.
    created_by: Option<String>,
    /// What the agent is.
    agent: String,
    /// What the user is.
    user: String,
    /// Axes of the sampling design.
    axes: Vec<AxisView>,
}

/// One axis of a design.
#[derive(Debug, Serialize, ToSchema)]
pub struct AxisView {
    name: String,
    /// Ids of its levels.
    values: Vec<String>,
}

fn view(pack: &DomainPack, state: DomainState, created_by: Option<String>) -> DomainView {
    let axis = |a: &domain::pack::Axis| AxisView {
        name: a.name.clone(),
        values: a.values.iter().map(|v| v.id.clone()).collect(),
    };
    DomainView {
        id: pack.id.clone(),
        object: "domain",
        title: pack.title.clone(),
        version: pack.version,
        state,
        is_built_in: created_by.is_none(),
        created_by,
        agent: pack.roles.agent.title.clone(),
        user: pack.roles.user.title.clone(),
        axes: pack.axes.iter().map(axis).collect(),
    }
}

impl From<Domain> for DomainView {
    fn from(d: Domain) -> Self {
        view(&d.pack, d.state, Some(d.created_by))
    }
}

fn built_in(id: &str) -> Option<&'static DomainPack> {
    PACKS.iter().find(|(known, _)| known == id).map(|(_, pack)| pack)
}

/// A version of a domain, or the one that new datasets use: the active one of those added, else the one that ships.
async fn find(
    state: &State,
    id: &str,
    version: Option<u32>,
) -> Result<Option<(DomainPack, DomainView)>, Problem> {
    if let Some(domain) = store::domains::find(&state.store, id, version).await? {
        return Ok(Some((domain.pack.clone(), domain.into())));
    }
    let ships = built_in(id).filter(|pack| version.is_none_or(|v| v == pack.version));
    Ok(ships.map(|pack| (pack.clone(), view(pack, DomainState::Active, None))))
}

/// The pack that a dataset was made with.
pub async fn pack_of(state: &State, spec: &DatasetSpec) -> Result<DomainPack, Problem> {
    let found = find(state, &spec.domain, spec.domain_version).await?;
    found.map(|(pack, _)| pack).ok_or_else(|| {
        Problem::new(
            ErrorCode::Conflict,
            format!("the domain {:?} of the dataset is not known here", spec.domain),
        )
    })
}

/// The version that a new dataset of this domain uses, or what is wrong with the name.
pub async fn version_for(state: &State, id: &str) -> Result<Result<u32, String>, Problem> {
    if let Some((pack, _)) = find(state, id, None).await? {
        return Ok(Ok(pack.version));
    }
    let shown: String = id.chars().take(80).collect();
    let active = all(state).await?.into_iter().filter(|d| d.state == DomainState::Active).map(|d| d.id);
    let known: Vec<String> = active.collect();
    Ok(Err(format!("there is no domain {shown:?}; there are {}", known.join(", "))))
}

/// Every version that was added, and those that ship where none of theirs is active.
async fn all(state: &State) -> Result<Vec<DomainView>, Problem> {
    let mut views: BTreeMap<(String, u32), DomainView> = BTreeMap::new();
    for domain in store::domains::all(&state.store).await? {
        views.insert((domain.pack.id.clone(), domain.pack.version), domain.into());
    }
    for (id, pack) in PACKS.iter() {
        let replaced = views.values().any(|v| v.id == *id && v.state == DomainState::Active);
        let shown = if replaced { DomainState::Retired } else { DomainState::Active };
        views.entry((id.clone(), pack.version)).or_insert_with(|| view(pack, shown, None));
    }
    Ok(views.into_values().collect())
}

/// List domains.
#[utoipa::path(operation_id = "listDomains", tag = "datasets",
    responses((status = 200, description = "All versions of all domains.", body = List<DomainView>)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/domains")]
async fn list_domains(state: Shared) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(List::whole(all(&state).await?)))
}

/// Which version.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct VersionQuery {
    /// Version; without it the one that new datasets use.
    #[param(minimum = 1, example = 1)]
    version: Option<u32>,
}

async fn asked(
    state: &State,
    req: &HttpRequest,
    query: &VersionQuery,
) -> Result<(DomainPack, DomainView), Problem> {
    let id = req.match_info().get("id").unwrap_or("");
    if let Some(found) = find(state, id, query.version).await? {
        return Ok(found);
    }
    let known: Vec<String> =
        all(state).await?.into_iter().map(|d| format!("{}@{}", d.id, d.version)).collect();
    let shown: String = id.chars().take(80).collect();
    let version = query.version.map(|v| format!("@{v}")).unwrap_or_default();
    let detail = format!("there is no domain {shown:?}{version}; there are {}", known.join(", "));
    Err(Problem::new(ErrorCode::NotFound, detail))
}

/// Get a domain.
#[utoipa::path(operation_id = "getDomain", tag = "datasets",
    params(("id" = String, Path, description = "The domain.", example = "insurance_brokerage"), VersionQuery),
    responses((status = 200, description = "The domain.", body = DomainView)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/domains/{id}")]
async fn get_domain(
    state: Shared,
    req: HttpRequest,
    query: Asked<VersionQuery>,
) -> Result<HttpResponse, Problem> {
    let (_, view) = asked(&state, &req, &query.0).await?;
    Ok(HttpResponse::Ok().json(view))
}

/// Get the pack of a domain.
///
/// The whole document, as it can be changed and added again with the next version number.
#[utoipa::path(operation_id = "getDomainPack", tag = "datasets",
    params(("id" = String, Path, description = "The domain.", example = "insurance_brokerage"), VersionQuery),
    responses((status = 200, description = "The pack.", body = DomainPack)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/domains/{id}/pack")]
async fn get_domain_pack(
    state: Shared,
    req: HttpRequest,
    query: Asked<VersionQuery>,
) -> Result<HttpResponse, Problem> {
    let (pack, _) = asked(&state, &req, &query.0).await?;
    Ok(HttpResponse::Ok().json(pack))
}
