//! The outermost layer: request and trace ids, span, log line, security headers, and the last look at errors.

use std::future::{Ready, ready};
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, ResponseError, web};
use chassis::telemetry::TraceContext;
use domain::ErrorCode;
use futures::FutureExt;
use tracing::Instrument;

use crate::contract::DOCS;
use crate::problem::PROBLEM_JSON;
use crate::{Api, Problem};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CSP: &str = "default-src 'none'; frame-ancestors 'none'";
/// The page of the documentation runs its own scripts, draws its own styles, and talks to this server only.
const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                        font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

tokio::task_local! {
    static TRACE_ID: String;
}

/// Trace id of the request whose task this is; zeros outside of requests.
pub(crate) fn current_trace_id() -> String {
    TRACE_ID.try_with(Clone::clone).unwrap_or_else(|_| "0".repeat(32))
}

/// Identifiers of a request, taken from its headers or made.
#[derive(Debug, Clone)]
pub struct Trace {
    context: TraceContext,
    /// `X-Request-Id`.
    pub request_id: String,
}

impl Trace {
    fn of(req: &ServiceRequest) -> Self {
        let text = |name: &HeaderName| req.headers().get(name).and_then(|v| v.to_str().ok());
        let context = text(&HeaderName::from_static("traceparent"))
            .and_then(TraceContext::parse)
            .map_or_else(TraceContext::generate, |parent| parent.child());
        let request_id = text(&REQUEST_ID)
            .filter(|id| uuid::Uuid::try_parse(id).is_ok() || is_ulid(id))
            .map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
        Self { context, request_id }
    }

    /// What a job made by this request carries.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        Some(self.context.header())
    }
}

fn is_ulid(text: &str) -> bool {
    text.len() == 26
        && text.bytes().all(|b| b.is_ascii_digit() || (b.is_ascii_uppercase() && !b"ILOU".contains(&b)))
}

impl FromRequest for Trace {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;
    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(
            req.extensions().get::<Self>().cloned().ok_or_else(|| {
                Problem::internal(anyhow::anyhow!("the edge did not see this request")).into()
            }),
        )
    }
}

/// Middleware around everything.
///
/// # Errors
/// Only when a handler panicked; the error renders as a problem.
pub async fn pass(req: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    let trace = Trace::of(&req);
    let trace_id = trace.context.trace_id().to_owned();
    let request_id = HeaderValue::from_str(&trace.request_id).expect("ids are plain ASCII");
    let method = req.method().clone();
    // The pattern and never the path: tickets travel in paths and queries.
    let route = req
        .app_data::<web::Data<Api>>()
        .and_then(|api| api.contract.pattern(req.path()))
        .unwrap_or_else(|| "unmatched".to_owned());
    let span = tracing::info_span!(
        "request", http.method = %method, http.route = %route, trace.id = %trace_id, request.id = %trace.request_id
    );
    let too_long = uri_limit(&req);
    req.extensions_mut().insert(trace);
    let answer = async move {
        match too_long {
            Some(problem) => Ok(req.error_response(problem)),
            None => next.call(req).await,
        }
    };
    let answer = TRACE_ID.scope(trace_id.clone(), AssertUnwindSafe(answer).catch_unwind());
    let mut response = match answer.instrument(span.clone()).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(error),
        Err(_panic) => {
            return Err(Problem::internal(anyhow::anyhow!("a handler panicked")).in_trace(&trace_id).into());
        }
    };
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && !is_problem(&response) {
        let kept = response.headers().get(header::ALLOW).cloned();
        response = response.map_body(|head, _| {
            let rendered = Problem::of_status(head.status).in_trace(&trace_id).error_response();
            head.headers = rendered.headers().clone();
            rendered.into_body()
        });
        if let Some(allow) = kept {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    let csp = if route == DOCS { PAGE_CSP } else { CSP };
    set_headers(&mut response, request_id, csp);
    let seconds = started.elapsed().as_secs_f64();
    span.in_scope(|| tracing::info!(status = status.as_u16(), ms = (seconds * 1e3) as u64, "answered"));
    metrics::counter!("ppx_http_requests_total", "method" => method_label(&method), "route" => route.clone(), "status" => status.as_u16().to_string())
        .increment(1);
    metrics::histogram!("ppx_http_request_seconds", "route" => route).record(seconds);
    Ok(response)
}

/// Methods as labels: a closed set, whatever a client invents.
fn method_label(method: &actix_web::http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn is_problem(response: &ServiceResponse<BoxBody>) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes() == PROBLEM_JSON.as_bytes())
}

fn uri_limit(req: &ServiceRequest) -> Option<Problem> {
    let api = req.app_data::<web::Data<Api>>()?;
    let length = req.uri().path_and_query().map_or(0, |p| p.as_str().len());
    let limit = if req.path().ends_with("/api/chat") { api.max_chat_uri_bytes } else { api.max_uri_bytes };
    (length > limit).then(|| {
        Problem::new(
            ErrorCode::UriTooLong,
            format!("the request target has {length} bytes; at most {limit} are read here"),
        )
    })
}

fn set_headers(response: &mut ServiceResponse<BoxBody>, request_id: HeaderValue, csp: &'static str) {
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for (name, value) in [(header::CONTENT_SECURITY_POLICY, csp), (header::CACHE_CONTROL, "no-store")] {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}
