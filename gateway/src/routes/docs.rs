//! The OpenAPI document and the page to try it; everything is served from here, nothing from a CDN.

use actix_web::http::header;
use actix_web::{HttpResponse, get, web};
use utoipa_actix_web::service_config::ServiceConfig;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::openapi;

/// Registers the document.
pub fn register_document(config: &mut ServiceConfig) {
    config.service(get_open_api);
}

/// Get this document.
#[utoipa::path(operation_id = "getOpenApi", tag = "health",
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = Object, content_type = "application/json")),
    extensions(("x-required-scope" = json!("none"))))]
#[get("/openapi.json")]
async fn get_open_api() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(openapi::text())
}

/// Registers the page.
pub fn register(config: &mut web::ServiceConfig) {
    let settings = Config::from("/openapi.json")
        .persist_authorization(true)
        .display_request_duration(true)
        .try_it_out_enabled(true)
        .filter(true);
    config
        .route(
            "/docs",
            web::get().to(async || {
                HttpResponse::PermanentRedirect().insert_header((header::LOCATION, "/docs/")).finish()
            }),
        )
        .service(SwaggerUi::new("/docs/{_:.*}").config(settings));
}
