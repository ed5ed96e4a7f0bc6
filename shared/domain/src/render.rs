//! What synthesis leaves behind for one dialogue.

use serde::{Deserialize, Serialize};

use crate::alignment::{AlignedTurn, AlignedWord};

/// Result of rendering one dialogue; stored as JSON beside the mono wav.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenderReport {
    /// Engine and version, e.g. `flite 2.2`.
    pub engine: String,
    /// Voice of the agent, a registered voice name.
    pub agent_voice: String,
    /// Voice of the user.
    pub user_voice: String,
    /// Milliseconds of audio.
    pub duration_ms: u64,
    /// Span of each turn.
    pub turns: Vec<AlignedTurn>,
    /// Times of the script's words as the engine reports them; `None` when it reports none.
    pub words: Option<Vec<AlignedWord>>,
}
