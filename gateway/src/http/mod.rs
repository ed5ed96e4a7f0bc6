//! What every request passes: identifiers, log line, contract, parsing, problems.

pub mod body;
pub mod contract;
pub mod edge;
pub mod once;
pub mod page;
pub mod params;
pub mod problem;

pub use body::Posted;
pub use edge::Trace;
pub use page::{List, PageQuery};
pub use params::{Asked, Id};
pub use problem::Problem;
