//! What is asked and what is answered, in words that fit every API.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Us.
    User,
    /// The model.
    Assistant,
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who.
    pub role: Role,
    /// What.
    pub text: String,
}

/// A tool that the model has to call: its input is the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its input.
    pub schema: Value,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatRequest {
    /// Model id as the vendor names it.
    pub model: String,
    /// The system text; empty = none.
    pub system: String,
    /// Whether the vendor should keep tools and system text for later requests.
    pub cache_system: bool,
    /// The conversation; starts with the user.
    pub messages: Vec<Message>,
    /// A call of this tool is the only answer allowed.
    pub tool: Option<Tool>,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// Randomness; none = the vendor's default.
    pub temperature: Option<f32>,
    /// Whether the answer comes in parts.
    pub stream: bool,
}

impl ChatRequest {
    /// A short question that is answered in text, in parts.
    #[must_use]
    pub fn text(
        model: impl Into<String>,
        system: impl Into<String>,
        user: impl Into<String>,
        max_tokens: u32,
    ) -> Self {
        Self {
            model: model.into(),
            system: system.into(),
            messages: vec![Message { role: Role::User, text: user.into() }],
            max_tokens,
            stream: true,
            ..Self::default()
        }
    }

    /// An upper bound of the input's tokens: no tokenizer makes more than one of each byte, and prose has at least two
    /// bytes a token.
    #[must_use]
    pub fn input_tokens_at_most(&self) -> u64 {
        let tool =
            self.tool.as_ref().map_or(0, |t| t.name.len() + t.description.len() + t.schema.to_string().len());
        let messages: usize = self.messages.iter().map(|m| m.text.len() + 16).sum();
        u64::try_from((self.system.len() + messages + tool).div_ceil(2) + 512).unwrap_or(u64::MAX)
    }
}

/// Part of a streamed answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Of its text.
    Text(String),
    /// Of the JSON text of the tool's input.
    Tool(String),
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    EndTurn,
    /// It called the tool.
    ToolUse,
    /// At the limit of tokens: the answer is not whole.
    MaxTokens,
    /// It, or a filter, refused.
    Refusal,
    /// Anything else.
    Other(String),
}

/// Tokens of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Read at the full price.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Put into the vendor's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Read from the vendor's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its text; empty when it is a call of the tool alone.
    pub text: String,
    /// Input of the tool, when it was called and is JSON.
    pub tool: Option<Value>,
    /// Why it ends.
    pub stop: StopReason,
    /// What it took.
    pub usage: Usage,
    /// The model that answered.
    pub model: String,
    /// The vendor's id of the request.
    pub request_id: Option<String>,
    /// What the answer said about limits.
    #[serde(skip)]
    pub limits: RateLimits,
}

/// What an answer says about the account's limits: only what makes us wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// Requests left until the reset.
    pub requests_remaining: Option<u64>,
    /// The smallest number of tokens left, of all kinds that are limited.
    pub tokens_remaining: Option<u64>,
    /// Time until what ran out is there again.
    pub reset_after: Option<Duration>,
}
