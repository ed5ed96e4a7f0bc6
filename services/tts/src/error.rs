//! What can go wrong between a script and its sound.

use domain::ErrorCode;

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum TtsError {
    /// A shared library of the engine cannot be loaded.
    #[error("cannot load {library:?}: {reason}; install the package {package:?}")]
    EngineMissing {
        /// File asked for.
        library: String,
        /// What the loader said.
        reason: String,
        /// Debian package that has it.
        package: &'static str,
    },
    /// The engine has no such voice.
    #[error("unknown voice {found:?}; known: {known}")]
    UnknownVoice {
        /// As asked for.
        found: String,
        /// All of them.
        known: String,
    },
    /// The engine gave no sound for text that has words.
    #[error("{engine} gave no sound for {words} words")]
    NoSound {
        /// Engine.
        engine: String,
        /// Words it was given.
        words: usize,
    },
    /// The engine's thread ended.
    #[error("{0} stopped working")]
    EngineStopped(&'static str),
    /// The script is longer than the settings allow.
    #[error("dialogue {id:?} has {words} words; the limit is {limit} ([tts].max_words)")]
    TooLong {
        /// Record.
        id: String,
        /// Words of its script.
        words: usize,
        /// Words allowed.
        limit: usize,
    },
    /// The script does not have the shape that it must have.
    #[error("dialogue {id:?}: {reason}")]
    Script {
        /// Record.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// Sound cannot be converted or written.
    #[error(transparent)]
    Audio(#[from] audio::AudioError),
}

impl TtsError {
    /// Stable code of the failed job.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::TooLong { .. } | Self::Script { .. } => ErrorCode::InvalidDialogue,
            _ => ErrorCode::SynthesisFailed,
        }
    }

    /// Whether another try, perhaps on another machine, may succeed.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::EngineStopped(_))
    }
}
