//! What building the view of a dialogue counted.

use serde::{Deserialize, Serialize};

use crate::text_stream::{Severity, TextStreamStats};

/// Counts of one dialogue for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogueStats {
    /// The text stream.
    pub text: TextStreamStats,
    /// Injections placed; all of them.
    pub injections: usize,
    /// Tokens of all contexts.
    pub context_tokens: usize,
    /// Frames contexts waited for the agent.
    pub deferred_frames: usize,
    /// Frames inserted.
    pub inserted_frames: usize,
    /// Frames before splicing.
    pub frames: usize,
}

/// Share of inserted frames above which the audio no longer sounds like the call it was.
pub const WARN_INSERTED_SHARE: f64 = 0.15;

impl DialogueStats {
    /// Inserted frames in relation to those of the dialogue.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "frames of a call are far below 2^53")]
    pub fn inserted_share(&self) -> f64 {
        if self.frames == 0 { 0.0 } else { self.inserted_frames as f64 / self.frames as f64 }
    }

    /// What a reader should look at: lost text tokens and inserted time.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let text = &self.text;
        if text.severity() != Severity::Ok {
            let (lost, all, share) = (text.tokens_dropped, text.tokens, 100.0 * text.dropped_share());
            out.push(format!("{lost} of {all} text tokens ({share:.1} %) found no frame"));
        }
        if self.inserted_share() > WARN_INSERTED_SHARE {
            let (n, share) = (self.inserted_frames, 100.0 * self.inserted_share());
            out.push(format!("context inserted {n} frames ({share:.1} % of the dialogue)"));
        }
        out
    }
}
