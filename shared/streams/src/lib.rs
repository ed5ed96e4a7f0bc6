//! What the model sees, in integers: the 17-channel frame grid, delays, the text stream, the system prompt,
//! context splicing, windows and loss masks, and the live inject queue.
//!
//! Dataset, trainer and inference all call this crate, so one injection looks the same in training and serving.
//! No I/O, no async, no tensors: callers hand in tokenizer bytes and codec codes.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod delays;
mod dialogue_stats;
pub mod dialogue_view;
pub mod error;
mod inject_item;
pub mod inject_queue;
pub mod layout;
pub mod masks;
pub mod offsets;
mod pieces;
pub mod prompt;
pub mod splice;
pub mod text_stream;
pub mod tokenizer;
pub mod tokens;
pub mod windows;

pub use dialogue_stats::{DialogueStats, WARN_INSERTED_SHARE};
pub use dialogue_view::{
    CarryContext, DialogueInput, PromptInput, SplicedDialogue, ViewConfig, Window, WindowConfig, WindowSet,
    build_dialogue,
};
pub use error::StreamsError;
pub use layout::{CHANNELS, CODEBOOKS, Codes, EMPTY_FRAME, Frame};
pub use prompt::SystemPrompt;
pub use tokenizer::{TextDecoder, Tokenizer};
pub use tokens::PromptCodes;
