//! Who calls, and what they may do.

pub mod guard;
pub mod key;
pub mod keyring;

pub use rest::{Caller, Scope};
