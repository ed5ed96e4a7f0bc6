//! Voices by name.

use actix_web::{HttpRequest, HttpResponse, get};
use chrono::{DateTime, Utc};
use domain::VoiceId;
use serde::Serialize;
use store::voices::Voice;
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::http::{Asked, List, PageQuery, Problem};
use crate::state::Shared;

/// Registers the operations.
pub fn register(config: &mut ServiceConfig) {
    config.service(list_voices);
}

/// A voice for the agent.
#[derive(Debug, Serialize, ToSchema)]
pub struct VoiceView {
    id: VoiceId,
    /// Always `voice`.
    #[schema(example = "voice")]
    object: &'static str,
    /// What sessions refer to.
    #[schema(example = "flite-slt")]
    name: String,
    /// Engine that made it, or `upload`.
    source: String,
    duration_ms: i64,
    /// Hex SHA-256 of the wav.
    sha256: String,
    created_at: DateTime<Utc>,
}

impl From<Voice> for VoiceView {
    fn from(v: Voice) -> Self {
        Self {
            id: v.id,
            object: "voice",
            name: v.name,
            source: v.source,
            duration_ms: v.duration_ms,
            sha256: v.sha256,
            created_at: v.created_at,
        }
    }
}

/// List voices.
#[utoipa::path(operation_id = "listVoices", tag = "models", params(PageQuery),
    responses((status = 200, description = "A page of voices.", body = List<VoiceView>)),
    extensions(("x-required-scope" = json!("models:read"))))]
#[get("/v1/voices")]
async fn list_voices(
    state: Shared,
    req: HttpRequest,
    page: Asked<PageQuery>,
) -> Result<HttpResponse, Problem> {
    let page = store::voices::list(&state.store, page.0.request(VoiceId::uuid)?).await?;
    let views = page.items.into_iter().map(VoiceView::from).collect();
    Ok(List::page(views, |v: &VoiceView| v.id.to_string(), page.has_more).answer(&req))
}
