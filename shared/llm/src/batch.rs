//! Batches: many requests at once, answered within a day, in any order, at half the price.

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::error::LlmError;
use crate::types::{Answer, ChatRequest};

/// Where a batch stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchState {
    /// The vendor's id.
    pub id: String,
    /// Whether all requests have ended; only then there are results.
    pub ended: bool,
    /// Requests that still wait.
    pub processing: u64,
}

/// What became of a request of a batch.
#[derive(Debug, Clone)]
pub enum BatchResult {
    /// An answer.
    Succeeded(Box<Answer>),
    /// It failed; nothing is charged.
    Errored(LlmError),
    /// It was cancelled before it was worked on.
    Canceled,
    /// The batch ended before it was worked on.
    Expired,
}

/// The API.
#[async_trait]
pub trait Batches: Send + Sync {
    /// Hands requests in, each with an id of ours (`^[a-zA-Z0-9_-]{1,64}$`).
    ///
    /// # Errors
    /// Classified as a call's.
    async fn submit(&self, requests: &[(String, ChatRequest)]) -> Result<BatchState, LlmError>;

    /// Asks where a batch stands.
    ///
    /// # Errors
    /// Classified as a call's.
    async fn poll(&self, id: &str) -> Result<BatchState, LlmError>;

    /// The results of a batch that has ended, in any order; one line that cannot be read ends the stream.
    ///
    /// # Errors
    /// Classified as a call's.
    async fn results(
        &self,
        id: &str,
    ) -> Result<BoxStream<'static, Result<(String, BatchResult), LlmError>>, LlmError>;
}
