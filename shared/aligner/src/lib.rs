//! Forced alignment: where in a recording each word of a known script is said.
//!
//! [`frontend`] turns sound into features, [`model`] reads an acoustic model (GMM-HMM, phonetically tied mixtures) and
//! [`senones`] scores with it, [`lexicon`] pronounces words, [`graph`] finds exact best paths, also for [`ctc`]
//! emissions. [`Aligner`] puts them together: times for all words ([`Aligner::align`]) and what was said otherwise than
//! written ([`Aligner::check`]). English only. No libtorch, no network.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod aligner;
mod bytes;
pub mod ctc;
pub mod error;
pub mod frontend;
pub mod graph;
mod levels;
pub mod lexicon;
mod long;
pub mod model;
pub mod phones;
mod reading;
mod script;
pub mod senones;
mod spelling;
mod trace;

pub use aligner::{Aligner, Sound, WordTime};
pub use error::AlignerError;
pub use reading::{Heard, Reading, Verdict};
pub use script::{Deviations, Insertion, Part};
pub use trace::{Segment, Trace};
