//! What is said for what is written: one copy for speech synthesis, alignment and checks.
//!
//! Script lines, ASCII punctuation, and the normaliser that turns money, dates, times, numbers, identifiers, units
//! and abbreviations into words while it remembers which written token they belong to. English only.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod ascii;
mod classes;
pub mod error;
pub mod matching;
pub mod normalise;
mod numbers;
pub mod script;
mod tables;

pub use ascii::to_ascii_punctuation;
pub use error::SpokenError;
pub use normalise::{Spoken, WrittenToken, normalise};
pub use numbers::{ONES, TENS};
pub use script::{ScriptLine, format_script, parse_script, script_from_turns};
pub use tables::MONTHS;
