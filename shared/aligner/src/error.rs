//! What can go wrong before any sound is aligned.

use std::path::PathBuf;

/// Errors of this crate. Aligning itself does not fail: sound that does not fit its words gives estimated times.
#[derive(Debug, thiserror::Error)]
pub enum AlignerError {
    /// A file of the acoustic model is missing or unreadable.
    #[error("cannot read {path} of the acoustic model (Debian package pocketsphinx-en-us)")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of the acoustic model holds something else.
    #[error("{path} is not what this reader knows: {reason}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with the value found.
        reason: String,
    },
    /// Fewer frames than the labels need.
    #[error("{frames} frames cannot hold {labels} labels of which {repeats} repeat the one before")]
    TooShort {
        /// Frames of the emissions.
        frames: usize,
        /// Labels to place.
        labels: usize,
        /// Labels equal to their predecessor; each needs a blank between.
        repeats: usize,
    },
    /// A label or the blank is outside the vocabulary.
    #[error("label {label} is not one of the {vocabulary} columns")]
    BadLabel {
        /// The label.
        label: usize,
        /// Columns of the emissions.
        vocabulary: usize,
    },
    /// Emissions whose length is no multiple of the number of columns.
    #[error("{values} values are no rows of {vocabulary} columns")]
    BadShape {
        /// Values given.
        values: usize,
        /// Columns.
        vocabulary: usize,
    },
}
