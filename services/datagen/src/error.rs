//! What can go wrong while dialogues are written. Nothing here is worth another try: the same input fails again.

use std::path::PathBuf;

use domain::pack::PackFaults;

use crate::validate::RecordFault;

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
    /// A design has no such row.
    #[error("row {row} is past the end of a design of {rows} rows")]
    NoRow {
        /// As asked for.
        row: u32,
        /// Rows of the design.
        rows: usize,
    },
    /// A text of the pack refers to something that the row does not have.
    #[error("template {template:?}: {detail}")]
    Template {
        /// The text.
        template: String,
        /// What is missing.
        detail: String,
    },
    /// The pack has too few phrases for the turns that it asks for.
    #[error("the phrases give {turns} turns; the call needs {min} to {max}")]
    Turns {
        /// As many as there are.
        turns: usize,
        /// Fewest.
        min: u32,
        /// Most.
        max: u32,
    },
    /// A record breaks rules.
    #[error("record {id}: {}", listed(.faults))]
    Rejected {
        /// Its id.
        id: String,
        /// All rules it breaks.
        faults: Vec<RecordFault>,
    },
}

fn listed(faults: &[RecordFault]) -> String {
    faults.iter().map(|f| format!("{} {}", f.code, f.detail)).collect::<Vec<_>>().join("; ")
}
