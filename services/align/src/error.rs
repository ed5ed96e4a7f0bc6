//! Why a dialogue cannot be aligned at all.

/// Situations that a caller can act on.
#[derive(Debug, thiserror::Error)]
pub enum AlignError {
    /// The render report is of another script.
    #[error("dialogue {id:?}: the render report has {found} turns, the record {expected}")]
    TurnCount {
        /// Record.
        id: String,
        /// Turns of the report.
        found: usize,
        /// Turns of the record.
        expected: usize,
    },
    /// A turn of the report is not the one of the record.
    #[error("dialogue {id:?}: turn {position} of the render report has index {index} or another speaker")]
    TurnMismatch {
        /// Record.
        id: String,
        /// Position in the record.
        position: usize,
        /// Index in the report.
        index: u32,
    },
    /// The rendered file is not what synthesis is to leave.
    #[error("dialogue {id:?}: needs mono audio at 24000 Hz, not {channels} channels at {rate} Hz")]
    Format {
        /// Record.
        id: String,
        /// Channels found.
        channels: usize,
        /// Rate found.
        rate: u32,
    },
    /// The acoustic model cannot be read.
    #[error(transparent)]
    Model(#[from] aligner::AlignerError),
    /// Sound cannot be read or written.
    #[error(transparent)]
    Audio(#[from] audio::AudioError),
}
