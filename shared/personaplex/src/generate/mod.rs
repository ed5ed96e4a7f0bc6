//! Generation one frame at a time (personaplex.md 1.6): values are given or sampled per stream, delays are applied here.

mod state;
mod step;

pub use state::{Emitted, GenOptions, GenState, Given, Order};
