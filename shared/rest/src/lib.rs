//! What every request of the REST API passes: identifiers, log line, contract, parsing, problems.
//!
//! Nothing here knows a route or how a key is checked. The application tells what it serves with an [`Api`] in its data
//! (`web::Data<Api>`), wraps itself in [`edge::pass`], and after authentication leaves a [`Caller`] in the extensions of
//! the request.

#![forbid(unsafe_code)]

pub mod api;
pub mod body;
pub mod caller;
pub mod contract;
pub mod edge;
pub mod form;
pub mod names;
pub mod once;
pub mod page;
pub mod params;
pub mod problem;

/// Policy of pages that hold what somebody wrote: styles and pictures of their own, never scripts.
pub const REPORT_CSP: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'";

pub use api::Api;
pub use body::Posted;
pub use caller::{Caller, Scope};
pub use edge::Trace;
pub use form::{Form, read_form};
pub use page::{List, PageQuery};
pub use params::{Asked, Id};
pub use problem::Problem;
