//! What a dataset is like: numbers, or a page.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get};
use artifacts::ArtifactsError;
use domain::{DatasetId, ErrorCode};
use rest::{Id, Problem};
use store::datasets::Dataset;

use crate::state::Shared;
use rest::REPORT_CSP;

/// Get the report of a dataset.
///
/// Durations, words a second, overlap, gaps, injections, levels, lost tokens and window starts; for an import what was put
/// right, and for one that was refused every fault. With `Accept: text/html` it is a page.
#[utoipa::path(operation_id = "getDatasetReport", tag = "datasets",
    params(("id" = DatasetId, Path, description = "The dataset.")),
    responses((status = 200, description = "The report.", content((Object = "application/json"), (String = "text/html")))),
    extensions(("x-required-scope" = json!("datasets:read"))))]
#[get("/v1/datasets/{id}/report")]
pub(super) async fn get_dataset_report(
    state: Shared,
    req: HttpRequest,
    id: Id<DatasetId>,
) -> Result<HttpResponse, Problem> {
    store::datasets::get(&state.store, id.0).await?;
    let html = wants_html(&req);
    let file = if html { "report.html" } else { "report.json" };
    let key = format!("{}/report/{file}", Dataset::prefix(id.0));
    let bytes = match state.artifacts.get(&key).await {
        Err(ArtifactsError::NotFound(_)) => {
            let detail = format!("dataset {} has no report yet: it is made at the end of its last job", id.0);
            return Err(Problem::new(ErrorCode::Conflict, detail));
        }
        read => read?,
    };
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::VARY, "Accept"));
    if html {
        answer
            .content_type("text/html; charset=utf-8")
            .insert_header((header::CONTENT_SECURITY_POLICY, REPORT_CSP));
    } else {
        answer.content_type("application/json");
    }
    Ok(answer.body(bytes))
}

/// Whether the page is asked for before JSON; browsers name it first.
fn wants_html(req: &HttpRequest) -> bool {
    let accept = req.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    let first = accept
        .split(',')
        .map(|range| range.split(';').next().unwrap_or("").trim())
        .find(|essence| matches!(*essence, "text/html" | "application/json"));
    first == Some("text/html")
}
