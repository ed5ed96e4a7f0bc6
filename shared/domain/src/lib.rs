//! The words of the field as types, with the rules that belong to them and nothing else.
//!
//! No I/O, no async, no SQL. Names follow `docs/GLOSSARY.md`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod alignment;
pub mod dataset;
pub mod dialogue;
pub mod error;
pub mod evaluation;
pub mod event;
pub mod frame;
pub mod hint;
pub mod ids;
pub mod injection;
pub mod job;
pub mod manifest;
pub mod pack;
pub mod preflight;
pub mod puppeteer;
pub mod render;
pub mod run;
pub mod session;

pub use error::ErrorCode;
pub use ids::*;
