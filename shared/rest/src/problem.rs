//! The one shape of every answer that is not a success (RFC 9457).

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use artifacts::ArtifactsError;
use domain::ErrorCode;
use domain::run::FieldFault;
use serde::Serialize;
use store::StoreError;

/// Media type of [`ProblemBody`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds a client should wait when a dependency is away.
const UNAVAILABLE_RETRY_SECONDS: u64 = 2;

/// An answer that is not a success.
#[derive(Debug)]
pub struct Problem {
    code: ErrorCode,
    detail: String,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, String)>,
    /// Logged, never sent.
    cause: Option<anyhow::Error>,
    /// Trace id; that of the current request when absent.
    instance: Option<String>,
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// RFC 6901 pointer into the request body; for query parameters the name after `?`.
    #[schema(example = "/dialogues")]
    pub pointer: String,
    /// Stable code.
    #[schema(example = "validation_failed")]
    pub code: String,
    /// What was expected and what was found.
    #[schema(example = "must be 2 to 5000, not 1")]
    pub detail: String,
}

/// Error answer, `application/problem+json` (RFC 9457).
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "urn:plexforge:problem:validation_failed",
    "title": "The request has invalid content",
    "status": 422,
    "detail": "/dialogues: must be 2 to 5000, not 1",
    "instance": "4bf92f3577b34da6a3ce929d0e0e4736",
    "code": "validation_failed",
    "errors": [{"pointer": "/dialogues", "code": "validation_failed", "detail": "must be 2 to 5000, not 1"}],
    "retryable": false
}))]
pub struct ProblemBody {
    /// Names the kind of problem: `urn:plexforge:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for every problem of this kind.
    pub title: &'static str,
    /// HTTP status.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// Trace id of the request, as in the logs.
    pub instance: String,
    /// Stable code.
    pub code: ErrorCode,
    /// Fields that are wrong; empty when the problem is not about fields.
    pub errors: Vec<FieldError>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

impl Problem {
    /// A problem with a detail for the caller.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let problem = Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            headers: Vec::new(),
            cause: None,
            instance: None,
        };
        match code.status() {
            503 => problem.retry_after(UNAVAILABLE_RETRY_SECONDS),
            // Clients that retry every 409 shall not retry those that stay.
            409 if !code.is_retryable() => problem.with("x-should-retry", "false"),
            _ => problem,
        }
    }

    /// A failure of ours: the cause goes into the log, the caller gets the trace id.
    pub fn internal(cause: impl Into<anyhow::Error>) -> Self {
        let mut problem = Self::new(ErrorCode::Internal, "something failed here; the trace id names it");
        problem.cause = Some(cause.into());
        problem
    }

    /// A dependency is away.
    pub fn unavailable(what: &str, cause: impl Into<anyhow::Error>) -> Self {
        let mut problem = Self::new(ErrorCode::Unavailable, format!("{what} is not available; try again"));
        problem.cause = Some(cause.into());
        problem
    }

    /// One wrong field of the body.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::fields([FieldFault { pointer: pointer.into(), detail: detail.into() }])
    }

    /// Wrong fields of the body.
    pub fn fields(faults: impl IntoIterator<Item = FieldFault>) -> Self {
        Self::fields_as(ErrorCode::ValidationFailed, faults)
    }

    /// Wrong fields under another code.
    pub fn fields_as(code: ErrorCode, faults: impl IntoIterator<Item = FieldFault>) -> Self {
        let errors: Vec<FieldError> = faults
            .into_iter()
            .map(|f| FieldError { pointer: f.pointer, code: code.as_str().into(), detail: f.detail })
            .collect();
        let told: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.pointer, e.detail)).collect();
        let mut problem = Self::new(code, told.join("; "));
        problem.errors = errors;
        problem
    }

    /// What was found, each under a code of its own.
    pub fn listing(code: ErrorCode, detail: impl Into<String>, errors: Vec<FieldError>) -> Self {
        let mut problem = Self::new(code, detail);
        problem.errors = errors;
        problem
    }

    /// Adds a response header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.headers.retain(|(name, _)| name != header::RETRY_AFTER);
        self.with("retry-after", seconds.to_string())
    }

    /// Names the trace, for answers made outside of the request's task.
    #[must_use]
    pub fn in_trace(mut self, trace_id: &str) -> Self {
        self.instance = Some(trace_id.to_owned());
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// From the status of an answer that the framework made.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            404 => ErrorCode::RouteNotFound,
            405 => ErrorCode::MethodNotAllowed,
            413 => ErrorCode::PayloadTooLarge,
            414 => ErrorCode::UriTooLong,
            415 => ErrorCode::UnsupportedMediaType,
            503 => ErrorCode::Unavailable,
            400..=499 => ErrorCode::InvalidRequest,
            _ => ErrorCode::Internal,
        };
        Self::new(code, code.title())
    }

    fn body(&self) -> ProblemBody {
        let instance = self.instance.clone().unwrap_or_else(crate::edge::current_trace_id);
        ProblemBody {
            kind: format!("urn:plexforge:problem:{}", self.code),
            title: self.code.title(),
            status: self.code.status(),
            detail: self.detail.clone(),
            instance,
            code: self.code,
            errors: self.errors.clone(),
            retryable: self.code.is_retryable(),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Renders the answer; the one place that logs what went wrong on our side.
    fn error_response(&self) -> HttpResponse {
        let body = self.body();
        match &self.cause {
            Some(cause) if body.status == 500 => {
                tracing::error!(code = %self.code, trace.id = %body.instance, error = format!("{cause:#}"), "request failed");
            }
            Some(cause) => {
                tracing::warn!(code = %self.code, trace.id = %body.instance, error = format!("{cause:#}"), "request refused");
            }
            None => {}
        }
        let mut response = HttpResponse::build(self.status_code());
        response.content_type(PROBLEM_JSON);
        for (name, value) in &self.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.insert_header((name.clone(), value));
            }
        }
        response.body(serde_json::to_vec(&body).expect("a problem is plain JSON"))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::NotFound { noun, key } => {
                let shown: String = key.chars().take(80).collect();
                Self::new(ErrorCode::NotFound, format!("there is no {noun} {shown:?}"))
            }
            StoreError::NameTaken { noun } => {
                Self::new(ErrorCode::NameTaken, format!("another {noun} has this name"))
            }
            StoreError::Illegal { .. } => Self::new(ErrorCode::Conflict, error.to_string()),
            StoreError::Stale { .. } => Self::new(ErrorCode::PreconditionFailed, error.to_string()),
            StoreError::Unavailable(_) | StoreError::NotMigrated { .. } => {
                Self::unavailable("the database", error)
            }
            _ => Self::internal(error),
        }
    }
}

impl From<ArtifactsError> for Problem {
    fn from(error: ArtifactsError) -> Self {
        match error {
            ArtifactsError::NotFound(_) | ArtifactsError::Damaged { .. } | ArtifactsError::Json { .. } => {
                let mut problem =
                    Self::new(ErrorCode::ArtifactDamaged, "a stored file is missing or damaged");
                problem.cause = Some(error.into());
                problem
            }
            ArtifactsError::BadKey(key) => {
                Self::new(ErrorCode::NotFound, format!("there is no file {key:?}"))
            }
            other => Self::internal(other),
        }
    }
}
