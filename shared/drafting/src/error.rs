//! What can go wrong while a dialogue is drafted. Nothing here is worth another try: the same input fails again.

/// Why a dialogue cannot be drafted.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// A design has no such row.
    #[error("row {row} is past the end of a design of {rows} rows")]
    NoRow {
        /// As asked for.
        row: u32,
        /// Rows of the design.
        rows: usize,
    },
    /// No order of the levels keeps a constraint of the pack.
    #[error(
        "row {row} cannot keep the constraint {constraint}: no other row of its block of {rows} rows can take its \
         level in exchange; use a larger block, another seed or a weaker constraint"
    )]
    Constraint {
        /// Pointer and text of it.
        constraint: String,
        /// The row.
        row: usize,
        /// Rows of the block.
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
}
