//! The `tts` service.

fn main() -> std::process::ExitCode {
    chassis::run("tts", tts::build)
}
