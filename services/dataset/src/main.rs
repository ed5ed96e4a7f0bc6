//! The `dataset` service.

fn main() -> std::process::ExitCode {
    chassis::run("dataset", dataset::build)
}
