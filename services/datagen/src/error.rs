//! What can go wrong while dialogues are written. Nothing here is worth another try: the same input fails again.

use std::path::PathBuf;

use domain::pack::PackFaults;
use drafting::DraftError;
use drafting::trial::TrialError;

/// Why dialogues cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DatagenError {
    /// The folder of packs or a file in it cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no domain pack.
    #[error("{path}: {faults}")]
    Pack {
        /// Which.
        path: PathBuf,
        /// All of them.
        faults: PackFaults,
    },
    /// Two packs have the same id.
    #[error("{path}: the id {id:?} belongs to another pack already")]
    DuplicatePack {
        /// The second file.
        path: PathBuf,
        /// The id of both.
        id: String,
    },
    /// No pack has this id.
    #[error("domain {domain:?} is not known; known: {known}")]
    UnknownDomain {
        /// As asked for.
        domain: String,
        /// Those there are.
        known: String,
    },
    /// A dialogue cannot be drafted.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// A pack cannot be spoken.
    #[error("{path}: {error}")]
    Trial {
        /// Its file.
        path: PathBuf,
        /// Why.
        error: TrialError,
    },
}
