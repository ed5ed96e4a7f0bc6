//! What can be wrong with a script.

/// Errors of this crate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpokenError {
    /// Text before the first `Speaker N:` line.
    #[error("line {line} belongs to no speaker: {text:?}")]
    NoSpeaker {
        /// Line number from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A speaker number that is no number.
    #[error("line {line} has the speaker number {number:?}")]
    BadSpeaker {
        /// Line number from 1.
        line: usize,
        /// What stands there.
        number: String,
    },
    /// A turn without words.
    #[error("turn {turn} has no text")]
    EmptyTurn {
        /// Turn number from 0.
        turn: usize,
    },
    /// A script without turns.
    #[error("script has no turns")]
    EmptyScript,
    /// A speaker that is neither agent nor user.
    #[error("turn {turn} is by speaker {speaker}; only 1 (agent) and 2 (user) have a voice")]
    UnknownSpeaker {
        /// Turn number from 0.
        turn: usize,
        /// Speaker number.
        speaker: u32,
    },
}
