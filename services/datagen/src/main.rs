//! The datagen service; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    chassis::run("datagen", datagen::build)
}
