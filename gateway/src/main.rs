//! `gateway [serve | migrate | openapi [--check] | bootstrap-key | healthcheck]`

fn main() -> std::process::ExitCode {
    gateway::cli::main()
}
