//! From the job history to live streams.

pub mod hub;
pub mod sse;
