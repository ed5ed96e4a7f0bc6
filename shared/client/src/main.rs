//! `ppx`: the command line of the API. See `ppx --help`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
