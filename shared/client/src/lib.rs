//! The typed client of the public API, and the library under the `ppx` command line.
//!
//! [`Client`] speaks REST with retries that never make a second resource; [`wait`](Client::wait_job) follows a job over
//! SSE; [`chat`] holds a live conversation over the websocket. Plain `http` and `ws`: TLS ends at a proxy.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod chat;
mod datasets;
mod dialogues;
mod error;
mod http;
mod resources;
mod retry;
pub mod sse;
pub mod views;
mod wait;

pub use error::{ClientError, ExitCode, Problem, ProblemField, Result};
pub use http::Client;
pub use retry::RetryPolicy;
pub use wait::WaitOptions;
