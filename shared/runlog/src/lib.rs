//! The numbers of a run in the formats that other programs read. Bytes in, bytes out: no files, no database.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod canvas;
mod curve;
mod event;
mod files;
mod table;
mod wandb;

use chrono::{DateTime, Utc};

pub use curve::{Curve, curve_png};
pub use event::event_file;
pub use files::log_files;
pub use table::{csv, parquet};
pub use wandb::history;

/// A number with the time at which it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Optimizer update, 0 = before the first.
    pub step: u32,
    /// Name, e.g. `train/loss`.
    pub name: String,
    /// Value.
    pub value: f64,
    /// When it was written.
    pub at: DateTime<Utc>,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum RunlogError {
    /// The Parquet writer refused.
    #[error("cannot write parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// The PNG writer refused.
    #[error("cannot write png: {0}")]
    Png(#[from] png::EncodingError),
    /// No number to draw.
    #[error("no metric {names:?} has a finite value yet")]
    Empty {
        /// What was looked for.
        names: Vec<String>,
    },
}
