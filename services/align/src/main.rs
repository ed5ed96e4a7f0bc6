//! The `align` service.

fn main() -> std::process::ExitCode {
    chassis::run("align", align::build)
}
