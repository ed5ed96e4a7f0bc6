//! Clients of writing models.
//!
//! A [`Provider`] makes one call and says exactly how it ended; [`Client`] puts retries, a limit of calls at once that
//! follows the answers, a circuit breaker and a hard budget around it. Keys come from the environment only and are in no
//! error and no log; neither are prompts and answers.

#![forbid(unsafe_code)]

pub mod anthropic;
pub mod batch;
pub mod breaker;
pub mod budget;
pub mod client;
pub mod error;
mod http;
pub mod limiter;
pub mod openai;
pub mod price;
pub mod retry;
pub mod settings;
pub mod types;

pub use anthropic::Anthropic;
pub use budget::Budget;
pub use client::Client;
pub use error::{Action, ErrorKind, LlmError};
pub use openai::OpenAi;
pub use price::Prices;
pub use settings::{ProviderKind, ProviderSettings};
pub use types::{Answer, ChatRequest, Delta, Message, Role, StopReason, Tool, Usage};

use async_trait::async_trait;

/// A writing model behind some API. Every call is one attempt.
#[async_trait]
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Name in logs and metrics.
    fn name(&self) -> &'static str;

    /// Asks once; `deltas` sees the parts of a streamed answer as they come.
    ///
    /// # Errors
    /// Classified, see [`ErrorKind`]. An answer that stopped at `max_tokens` or was refused is an answer, not an error.
    async fn chat(
        &self,
        request: &ChatRequest,
        deltas: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, LlmError>;

    /// The API of batches, when the provider has one.
    fn batches(&self) -> Option<&dyn batch::Batches> {
        None
    }
}
