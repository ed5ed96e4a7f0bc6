//! Whole stacks as child processes: the real binaries, servers and files.
#![expect(clippy::unwrap_used, reason = "tests")]

mod api;
mod broker;
mod chaos;
mod cli;
mod datasets;
mod telemetry;
mod trainings;
