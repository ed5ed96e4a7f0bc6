//! Arguments, dispatch and exit codes; one file for each group of commands.

mod archive;
mod bench;
mod dataset;
mod demo;
mod dialogues;
mod doctor;
mod domain;
mod evaluate;
mod jobs;
mod launch;
mod model;
mod models;
mod output;
mod progress;
mod runs;
mod session;
mod train;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use client::{Client, Result, WaitOptions};
use output::Output;

/// Train, serve and judge full-duplex speech models through the Plexforge API.
#[derive(Debug, Parser)]
#[command(name = "ppx", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 a job failed or a model is damaged, 2 usage, 3 credentials, 4 not found, 5 cancelled, 6 time-out, \
                          7 the server failed or cannot be reached.";

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Where the gateway is.
    #[arg(long, global = true, env = "PPX_API_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// API key.
    #[arg(
        long,
        global = true,
        env = "PPX_API_KEY",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    key: String,
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Datasets: generated, spoken and aligned dialogues.
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// Dialogues of datasets: read, corrected, approved and rejected.
    #[command(subcommand)]
    Dialogues(dialogues::DialoguesCommand),
    /// Domain packs: what datasets are about.
    #[command(subcommand)]
    Domain(domain::DomainCommand),
    /// Start a training.
    Train(Box<train::TrainCommand>),
    /// Trainings.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Jobs: the units of work behind everything that takes long.
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Models that the server can talk with.
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Model directories on this machine; needs no server.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Live conversations.
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Play eval dialogues against a model and measure.
    Evaluate(evaluate::EvaluateArgs),
    /// Compare two evaluations pairwise.
    Compare(evaluate::CompareArgs),
    /// Voices for the agent.
    #[command(subcommand)]
    Voices(models::VoicesCommand),
    /// The speed of this machine, beside the published packages; needs no server.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Check that this machine can use the API.
    Doctor,
    /// Run the whole job on a tiny model: dataset, training, session, evaluation, comparison.
    Demo(demo::DemoArgs),
}

/// Waiting for a job.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// Wait until it has ended.
    #[arg(long)]
    wait: bool,
    /// Give up waiting after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    timeout: u64,
}

impl WaitArgs {
    fn options(&self) -> WaitOptions {
        WaitOptions { timeout: Duration::from_secs(self.timeout), ..WaitOptions::default() }
    }
}

/// What a command works with.
pub(crate) struct Context {
    globals: Globals,
    pub(crate) out: Output,
}

impl Context {
    /// The client that the options describe.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::new(&self.globals.url, &self.globals.key)
    }
}

/// Runs the command of this process's arguments.
pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let out = Output::new(arguments.globals.json);
    let context = Context { globals: arguments.globals, out };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            context.out.note(&format!("cannot start: {error}"));
            return ExitCode::from(client::ExitCode::Usage as u8);
        }
    };
    match runtime.block_on(Box::pin(dispatch(arguments.command, &context))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            context.out.error(&error);
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

async fn dispatch(command: Command, context: &Context) -> Result<()> {
    match command {
        Command::Dataset(command) => dataset::run(command, context).await,
        Command::Dialogues(command) => dialogues::run(command, context).await,
        Command::Domain(command) => domain::run(command, context).await,
        Command::Train(command) => train::command(*command, context).await,
        Command::Runs(command) => runs::runs(command, context).await,
        Command::Jobs(command) => jobs::run(command, context).await,
        Command::Models(command) => models::registry(command, context).await,
        Command::Model(command) => model::local(command, context),
        Command::Session(command) => session::run(command, context).await,
        Command::Evaluate(args) => evaluate::evaluate(args, context).await,
        Command::Compare(args) => evaluate::compare(args, context).await,
        Command::Voices(models::VoicesCommand::List) => models::voices(context).await,
        Command::Bench(command) => bench::bench(command),
        Command::Doctor => doctor::run(context).await,
        Command::Demo(args) => demo::run(args, context).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent_and_the_key_is_never_shown() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        assert!(help.contains("PPX_API_KEY") && !help.contains("PPX_API_KEY="), "{help}");
    }

    #[test]
    fn documented_command_lines_parse() {
        for line in [
            "ppx dataset create --name a --domain pharma_adherence --dialogues 12 --wait",
            "ppx dataset import data/pharma.tar.gz --name pharma --main-speaker-label SPEAKER_MAIN --wait",
            "ppx dataset import pharma --on-server --drop-voices --script-words --license cc-by-4.0",
            "ppx dataset export pharma out/pharma.tar",
            "ppx dataset report pharma --html report.html",
            "ppx dataset create --name a --dialogues 12 --approved-only",
            "ppx dataset create --name a --dialogues 24 --extends a@1",
            "ppx dataset release a",
            "ppx dialogues list --dataset a --code V08 --axis tenor:warm --words flood",
            "ppx dialogues show dlg_01938f6e0c3b7a54b1f2a0c4d5e6f708 --html page.html",
            "ppx dialogues reject dlg_01938f6e0c3b7a54b1f2a0c4d5e6f708 --reason dull",
            "ppx domain check own.yaml",
            "ppx domain activate dental_reminders@1",
            "ppx domain new dentist --id dental_reminders --with ask-a-model --out dental.json",
            "ppx train --dataset a --base tiny --steps 40 --wait --json",
            "ppx train launch --nproc-per-node 2 --devices cuda:0,cuda:1",
            "ppx train launch --nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr a -- trainer rank",
            "ppx runs metrics run_01938f6e0c3b7a54b1f2a0c4d5e6f708 --name train/loss",
            "ppx jobs events job_01938f6e0c3b7a54b1f2a0c4d5e6f708 -f",
            "ppx model init --preset tiny --seed 0 out",
            "ppx model init --preset personaplex-7b --tokenizer spm.model --shard-size 5GB out",
            "ppx model convert --init-from-moshi --dtype bf16 in out",
            "ppx model merge base adapter out",
            "ppx session talk --model tiny --wav in.wav --out out.wav --inject ctx.jsonl --seed 3",
            "ppx evaluate --dataset a --model tiny --wait",
            "ppx compare base tuned --wait --out reports",
            "ppx demo --dialogues 4",
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }
}
