//! Knowledge bases: facts that puppeteers may tell the agent.

use actix_web::{HttpRequest, HttpResponse, delete, get, post};
use chrono::{DateTime, Utc};
use domain::KnowledgeBaseId;
use puppeteer::{Fact, KnowledgeBase as Facts};
use rest::once::Created;
use rest::{Asked, Id, List, PageQuery, Posted, Problem};
use serde::{Deserialize, Serialize};
use store::puppeteers::KnowledgeBase;
use store::{Tx, puppeteers};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::Shared;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config
        .service(create_knowledge_base)
        .service(list_knowledge_bases)
        .service(get_knowledge_base)
        .service(delete_knowledge_base);
}

/// Facts to store: a list of them, or Markdown of which every paragraph and list item is one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "acme-renewals",
    "facts": [{"id": "policy-2266", "text": "Policy 2266 renews on March 3.", "tags": ["renewal"]}]
}))]
pub struct CreateKnowledgeBase {
    /// Unique.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    name: String,
    /// At most 2,000 facts of at most 600 characters.
    facts: Option<Vec<Fact>>,
    /// Instead of `facts`; headings become tags of what stands below them.
    markdown: Option<String>,
}

/// A knowledge base.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnowledgeBaseView {
    id: KnowledgeBaseId,
    /// Always `knowledge_base`.
    #[schema(example = "knowledge_base")]
    object: &'static str,
    #[schema(example = "acme-renewals")]
    name: String,
    /// Number of facts.
    fact_count: usize,
    created_at: DateTime<Utc>,
}

/// A knowledge base with what it holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnowledgeBaseDetail {
    #[serde(flatten)]
    base: KnowledgeBaseView,
    facts: Vec<Fact>,
}

impl From<&KnowledgeBase> for KnowledgeBaseView {
    fn from(base: &KnowledgeBase) -> Self {
        Self {
            id: base.id,
            object: "knowledge_base",
            name: base.name.clone(),
            fact_count: base.count,
            created_at: base.created_at,
        }
    }
}

/// Store a knowledge base.
///
/// Sessions name it in their `puppeteer`.
#[utoipa::path(operation_id = "createKnowledgeBase", tag = "sessions", request_body = CreateKnowledgeBase,
    responses((status = 201, description = "It can be used.", body = KnowledgeBaseView)),
    extensions(("x-required-scope" = json!("sessions:create"))))]
#[post("/v1/knowledge-bases")]
async fn create_knowledge_base(
    state: Shared,
    posted: Posted<CreateKnowledgeBase>,
) -> Result<HttpResponse, Problem> {
    let prepare = async |body: CreateKnowledgeBase| {
        rest::names::check(&body.name, Vec::new())?;
        let (pointer, facts) = match (body.facts, body.markdown) {
            (Some(facts), None) => ("/facts", Facts::new(facts)),
            (None, Some(markdown)) => ("/markdown", Facts::from_markdown(&markdown)),
            _ => return Err(Problem::field("/facts", "expected either `facts` or `markdown`")),
        };
        let facts = facts.map_err(|error| Problem::field(pointer, error.to_string()))?;
        Ok((body.name, facts))
    };
    let write = async |tx: &mut Tx, (name, facts): (String, Facts)| {
        let stored = puppeteers::insert(tx, &name, facts.facts()).await?;
        let location = format!("/v1/knowledge-bases/{}", stored.id);
        Ok(Created { location, view: KnowledgeBaseView::from(&stored) })
    };
    posted.once(&state.store, &[], prepare, write).await
}

/// List knowledge bases.
#[utoipa::path(operation_id = "listKnowledgeBases", tag = "sessions", params(PageQuery),
    responses((status = 200, description = "A page of knowledge bases.", body = List<KnowledgeBaseView>)),
    extensions(("x-required-scope" = json!("sessions:read"))))]
#[get("/v1/knowledge-bases")]
async fn list_knowledge_bases(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = puppeteers::list(&state.store, page.0.request(KnowledgeBaseId::uuid)?).await?;
    let views = page.items.iter().map(KnowledgeBaseView::from).collect();
    Ok(List::page(views, |v: &KnowledgeBaseView| v.id.to_string(), page.has_more).answer(&req))
}

/// Get a knowledge base.
#[utoipa::path(operation_id = "getKnowledgeBase", tag = "sessions",
    params(("id" = KnowledgeBaseId, Path, description = "The knowledge base.")),
    responses((status = 200, description = "The knowledge base with its facts.", body = KnowledgeBaseDetail)),
    extensions(("x-required-scope" = json!("sessions:read"))))]
#[get("/v1/knowledge-bases/{id}")]
async fn get_knowledge_base(state: Shared, id: Id<KnowledgeBaseId>) -> Result<HttpResponse, Problem> {
    let stored = puppeteers::get(&state.store, &id.0.to_string()).await?;
    let facts = stored.facts()?;
    Ok(HttpResponse::Ok().json(KnowledgeBaseDetail { base: (&stored).into(), facts }))
}

/// Delete a knowledge base.
///
/// Sessions that run with it keep what they have read.
#[utoipa::path(operation_id = "deleteKnowledgeBase", tag = "sessions",
    params(("id" = KnowledgeBaseId, Path, description = "The knowledge base.")),
    responses((status = 204, description = "It is gone.")),
    extensions(("x-required-scope" = json!("sessions:create"))))]
#[delete("/v1/knowledge-bases/{id}")]
async fn delete_knowledge_base(state: Shared, id: Id<KnowledgeBaseId>) -> Result<HttpResponse, Problem> {
    puppeteers::delete(&state.store, id.0).await?;
    Ok(HttpResponse::NoContent().finish())
}
