//! `inference`: serves live sessions.

use std::process::ExitCode;

fn main() -> ExitCode {
    chassis::run("inference", inference::build)
}
