//! The full model's shape on one device: writes a checkpoint with random weights, loads it, steps it eagerly and as CUDA
//! graphs, trains a step, and compares streaming with prefill. Prints one table; exits with 1 when a requirement fails.
//!
//! `cargo bench -p personaplex --bench full_shape -- step DIR --device cuda`; `docs/PERFORMANCE.md` has recorded runs.

mod codec;
mod load;
mod measure;
mod parity;
mod step;
mod tiny;
mod train;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use measure::Table;
use personaplex::Lm;
use tch::{Device, Kind};

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// cpu, cuda or cuda:N
    #[arg(long, global = true, default_value = "cuda")]
    device: String,
    /// f32 or bf16
    #[arg(long, global = true, default_value = "bf16")]
    dtype: String,
    /// What cargo passes to every benchmark.
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Write a model directory with random weights, in shards
    Write(write::Args),
    /// Load it: time, host memory, device memory
    Load { dir: PathBuf },
    /// Milliseconds per frame for several batch sizes; the same tokens eagerly and as graphs
    Step(step::Args),
    /// The codec: milliseconds per frame for several batch sizes, eagerly and as graphs
    Codec(codec::Args),
    /// LoRA training steps: finite, time, memory
    Train(train::Args),
    /// Streaming against prefill in hidden state
    Parity(parity::Args),
    /// The tiny golden model on this device against the CPU, in f32
    Tiny {
        /// The set `lm_tiny` of the golden data
        set: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all requirements hold.
fn run(cli: &Cli) -> Outcome<bool> {
    let device = nn::device::choose(&cli.device)?;
    let kind = nn::device::dtype(&cli.dtype)?;
    println!("{}", measure::machine(device)?);
    let mut table = Table::default();
    match &cli.command {
        Command::Write(args) => write::run(args, &mut table)?,
        Command::Load { dir } => load::run(dir, device, kind, &mut table)?,
        Command::Step(args) => step::run(args, device, kind, &mut table)?,
        Command::Codec(args) => codec::run(args, device, &mut table)?,
        Command::Train(args) => train::run(args, device, kind, &mut table)?,
        Command::Parity(args) => parity::run(args, device, kind, &mut table)?,
        Command::Tiny { set } => tiny::run(set, device, &mut table)?,
    }
    print!("{table}");
    Ok(table.holds())
}

/// The model on the device, everything of the loading done.
fn open(dir: &std::path::Path, device: Device, kind: Kind) -> Outcome<Lm> {
    let lm = Lm::load(dir, device, kind)?;
    nn::graph::synchronize(device)?;
    Ok(lm)
}
