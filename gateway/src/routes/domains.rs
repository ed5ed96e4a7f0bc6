//! Domain packs that datasets can be made from.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, get};
use domain::ErrorCode;
use domain::pack::DomainPack;
use rest::{List, Problem};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

static PACKS: LazyLock<Vec<(String, DomainPack)>> = LazyLock::new(domain::pack::built_in);

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_domains).service(get_domain);
}

/// Ids of the packs.
pub(super) fn known() -> Vec<&'static str> {
    PACKS.iter().map(|(id, _)| id.as_str()).collect()
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

impl From<&DomainPack> for DomainView {
    fn from(pack: &DomainPack) -> Self {
        let axis = |a: &domain::pack::Axis| AxisView {
            name: a.name.clone(),
            values: a.values.iter().map(|v| v.id.clone()).collect(),
        };
        Self {
            id: pack.id.clone(),
            object: "domain",
            title: pack.title.clone(),
            version: pack.version,
            agent: pack.roles.agent.title.clone(),
            user: pack.roles.user.title.clone(),
            axes: pack.axes.iter().map(axis).collect(),
        }
    }
}

/// List domains.
#[utoipa::path(operation_id = "listDomains", tag = "datasets",
    responses((status = 200, description = "All domains.", body = List<DomainView>)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/domains")]
async fn list_domains() -> HttpResponse {
    HttpResponse::Ok().json(List::whole(PACKS.iter().map(|(_, pack)| DomainView::from(pack)).collect()))
}

/// Get a domain.
#[utoipa::path(operation_id = "getDomain", tag = "datasets", params(("id" = String, Path, description = "The domain.", example = "insurance_brokerage")),
    responses((status = 200, description = "The domain.", body = DomainView)),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/domains/{id}")]
async fn get_domain(req: HttpRequest) -> Result<HttpResponse, Problem> {
    let id = req.match_info().get("id").unwrap_or("");
    let pack = PACKS.iter().find(|(known, _)| known == id).map(|(_, pack)| pack).ok_or_else(|| {
        let shown: String = id.chars().take(80).collect();
        Problem::new(
            ErrorCode::NotFound,
            format!("there is no domain {shown:?}; there are {}", known().join(", ")),
        )
    })?;
    Ok(HttpResponse::Ok().json(DomainView::from(pack)))
}
