//! Context to be spliced into the text stream.

use serde::{Deserialize, Serialize};

/// Context given after a turn, before it has a place on the frame grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Injection {
    /// Index of the turn it follows (reactive) or falls into (proactive).
    pub after_turn: u32,
    /// Imperative first, then facts; no tags.
    pub text: String,
    /// Frames of 80 ms from the start of the conversation, once placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_offset: Option<u32>,
}

/// Relation of an injection to the turn it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// While the user speaks.
    Proactive,
    /// After the agent's hedge.
    Reactive,
}
