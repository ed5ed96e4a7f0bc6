//! The trainer service; with `rank` as first argument one of the other processes of a run, with `bench` its speed.

use std::process::ExitCode;

use trainer::TrainerSettings;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "rank" => chassis::run_tool("trainer-rank", |settings| {
            trainer::rank::run(&settings.section::<TrainerSettings>("trainer")?, rest)
        }),
        Some((first, rest)) if first == "bench" => {
            chassis::run_tool("trainer-bench", |_| trainer::bench::run(rest))
        }
        _ => chassis::run("trainer", trainer::build),
    }
}
