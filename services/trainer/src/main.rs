//! The trainer service.

fn main() -> std::process::ExitCode {
    chassis::run("trainer", trainer::build)
}
