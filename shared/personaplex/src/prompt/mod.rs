//! What a conversation starts with: voice, silence, text, silence (personaplex.md 2.2 to 2.5).
//!
//! # Calls of the published package, frames, rows
//!
//! The published package counts calls of its step; here frames are counted, and rows are what the model sees.
//!
//! * Call t writes its values into row `t + delay`: text and codebook 0 of each side into row t, the others into row t + 1.
//! * Row 0 is always the initial row, and so are the delayed streams of row 1. So **everything given at call 0 is lost**,
//!   and call 1 runs the model for the first time. Frame i here is call i + 1 there: text and codebook 0 in row i + 1, the
//!   others in row i + 2.
//! * A clip of F frames is F calls, 0 to F - 1, and conditions on F - 1 frames only. A clip given as codes here is not cut:
//!   its frames 0 to F - 1 all count, as they do in training. Dropping its first frame gives the published package's ids.
//! * A `.pt` was written after those F calls. `embeddings[i]` is the summed input of row i for rows 0 to F - 2. Row F - 1 is
//!   complete but not yet through the model; the delayed streams of row F are known. Both are in the ring `cache`, row p in
//!   column p mod 4; whatever else the ring holds is older. The next call is F: frame F - 1 here.
//!
//! So a replayed voice is `n = F - 1` embedded rows, row n in full, row n + 1 as far as known, and the phases that follow
//! start with frame n. [`crate::Prompt`] takes exactly these three parts.

mod voice;

pub use voice::VoicePrompt;

use streams::prompt::SystemPrompt;
use streams::tokens::PromptCodes;

use crate::Prompt;

/// Lays out the phases: the voice, then silence, the text's tokens and silence. Without voice and text there is no prompt;
/// with one of them both silences are there. The user's side carries the marker tone throughout.
#[must_use]
pub fn system_prompt(voice: Option<&VoicePrompt>, tokens: &[i32], codes: &PromptCodes) -> Prompt {
    match voice {
        None => Prompt::of_frames(SystemPrompt::new(Vec::new(), tokens.to_vec()).frames(codes)),
        Some(VoicePrompt::Codes(voice)) => {
            Prompt::of_frames(SystemPrompt::new(voice.to_vec(), tokens.to_vec()).frames(codes))
        }
        Some(VoicePrompt::Embeddings { embeddings, rows }) => Prompt {
            embeddings: Some(embeddings.shallow_clone()),
            rows: rows.clone(),
            frames: SystemPrompt::new(Vec::new(), tokens.to_vec()).after_voice(codes),
        },
    }
}
