//! How a call can fail, and what follows from it (finetune.md 2.5).

use std::time::Duration;

use crate::types::RateLimits;

/// Longest part of a vendor's message that is kept.
const MESSAGE_CHARS: usize = 300;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The key is wrong, lacks a right, or the account cannot pay.
    Auth,
    /// There is no such model or path.
    NotFound,
    /// Too many requests or tokens.
    RateLimited,
    /// The account's limit of spending is reached.
    SpendLimit,
    /// The vendor has no capacity.
    Overloaded,
    /// The request is not accepted, now or ever.
    InvalidRequest,
    /// The prompt does not fit the window of the model.
    ContextTooLong,
    /// A filter of the vendor refused the content.
    Refused,
    /// The answer ended at its limit of tokens where a whole one is needed.
    Truncated,
    /// The stream ended before the answer did.
    StreamCut,
    /// No answer in time.
    Timeout,
    /// No connection.
    Network,
    /// A fault of the vendor.
    Server,
    /// The answer is not what the API promises.
    Malformed,
    /// The budget does not allow another call.
    BudgetExceeded,
    /// The circuit breaker is open.
    BreakerOpen,
}

/// What a caller does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ask again after a while.
    Retry,
    /// Give this request up.
    FailRow,
    /// Give the whole job up: every other request would end the same.
    StopJob,
}

impl ErrorKind {
    /// What follows from it.
    #[must_use]
    pub const fn action(self) -> Action {
        match self {
            Self::Auth | Self::NotFound | Self::SpendLimit | Self::ContextTooLong | Self::BudgetExceeded => {
                Action::StopJob
            }
            Self::InvalidRequest | Self::Refused | Self::Truncated => Action::FailRow,
            Self::RateLimited
            | Self::Overloaded
            | Self::StreamCut
            | Self::Timeout
            | Self::Network
            | Self::Server
            | Self::Malformed
            | Self::BreakerOpen => Action::Retry,
        }
    }
}

/// A failed call. Holds no key, no prompt and no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind:?}: {detail}{}", .request_id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default())]
pub struct LlmError {
    /// What went wrong.
    pub kind: ErrorKind,
    /// For the reader.
    pub detail: String,
    /// Status of the answer, when there was one.
    pub status: Option<u16>,
    /// The vendor's id of the request.
    pub request_id: Option<String>,
    /// Shortest wait before another try.
    pub retry_after: Option<Duration>,
    /// Whether the vendor may charge for the call although no answer came.
    pub uncertain: bool,
    /// What the answer said about limits.
    pub limits: RateLimits,
}

impl LlmError {
    /// An error without an answer behind it.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        Self {
            kind,
            detail: detail.chars().take(MESSAGE_CHARS).collect(),
            status: None,
            request_id: None,
            retry_after: None,
            uncertain: false,
            limits: RateLimits::default(),
        }
    }

    /// The same, where the vendor may have charged already.
    #[must_use]
    pub fn uncertain(mut self) -> Self {
        self.uncertain = true;
        self
    }

    /// What follows from it.
    #[must_use]
    pub const fn action(&self) -> Action {
        self.kind.action()
    }
}

/// The kind of an error that both APIs describe by status, type and message.
#[must_use]
pub fn classify(status: u16, code: &str, message: &str) -> ErrorKind {
    let text = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word) || code.contains(word));
    let too_long =
        ["prompt is too long", "context length", "context_length", "context window", "maximum context"];
    let spend = ["spend limit", "usage limit", "credit balance", "insufficient_quota", "billing"];
    let refused = ["content_filter", "content filter", "content_policy", "content management policy"];
    match status {
        _ if code == "overloaded_error" => ErrorKind::Overloaded,
        _ if code == "rate_limit_error" && !says(&spend) => ErrorKind::RateLimited,
        _ if code == "api_error" => ErrorKind::Server,
        _ if code == "timeout_error" => ErrorKind::Timeout,
        401..=403 => ErrorKind::Auth,
        404 => ErrorKind::NotFound,
        400 | 422 | 429 if says(&spend) => ErrorKind::SpendLimit,
        400 | 422 if says(&too_long) => ErrorKind::ContextTooLong,
        400 | 422 if says(&refused) => ErrorKind::Refused,
        408 | 504 => ErrorKind::Timeout,
        409 => ErrorKind::Server,
        429 => ErrorKind::RateLimited,
        503 | 529 => ErrorKind::Overloaded,
        400..=499 => ErrorKind::InvalidRequest,
        _ => ErrorKind::Server,
    }
}
