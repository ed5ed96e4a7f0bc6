//! The evaluation service.

fn main() -> std::process::ExitCode {
    chassis::run("evaluation", evaluation::build)
}
