//! Tests of the whole house; see `architecture.rs` and `it/`.
