//! Refusals before the upgrade, as RFC 9457 documents.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use domain::ErrorCode;
use serde_json::json;

/// Seconds a client should wait before it asks for a slot again.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The answer for `code`; `trace` is the trace id that the logs carry.
pub(crate) fn problem(code: ErrorCode, detail: &str, trace: &str) -> HttpResponse {
    let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = HttpResponse::build(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.insert_header(("Retry-After", RETRY_AFTER_SECONDS.to_string()));
    }
    let body = json!({
        "type": "about:blank", "title": code.title(), "status": code.status(), "detail": detail,
        "instance": trace, "code": code.as_str(), "errors": [], "retryable": code.is_retryable(),
    });
    answer.content_type("application/problem+json").body(body.to_string())
}
