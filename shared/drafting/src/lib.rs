//! From a domain pack to a checked dialogue: the sampling design, the texts that a model is asked with, the offline
//! generator, and the rules that every record keeps.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no randomness without a seed. The service that
//! writes dialogues, the API that shows and edits them and the command line all use this one copy.

#![forbid(unsafe_code)]

pub mod allocate;
pub mod bootstrap;
pub mod brief;
pub mod claims;
pub mod error;
pub mod grammar;
pub mod prompts;
pub mod rng;
pub mod sampler;
pub mod slots;
pub mod trial;
pub mod validate;

pub use error::DraftError;
