//! A model directory in the published shape with random weights.

use std::path::PathBuf;
use std::time::Instant;

use weights::{InitOptions, ModelConfig, WriteOptions, init_model_as, preset_tokenizer};

use crate::Outcome;
use crate::measure::{HostMemory, Table, gib};

#[derive(clap::Args)]
pub struct Args {
    /// Must not exist
    dir: PathBuf,
    #[arg(long, default_value = "personaplex-7b")]
    preset: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most GiB in one shard
    #[arg(long, default_value_t = 4)]
    shard_gib: u64,
}

pub fn run(args: &Args, table: &mut Table) -> Outcome {
    let config = ModelConfig::preset(&args.preset)?;
    // The published tokenizer is not ours to carry; the text ids here are random.
    let tokenizer = preset_tokenizer("tiny")?;
    let write = WriteOptions { shard_size: Some(args.shard_gib << 30), threads: None };
    let options = InitOptions { seed: args.seed, write };
    let (start, memory) = (Instant::now(), HostMemory::watch());
    init_model_as(&args.dir, &config, tokenizer, options)?;
    let (_, peak) = memory.finish();
    let bytes: u64 =
        std::fs::read_dir(&args.dir)?.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
    let seconds = start.elapsed().as_secs_f64();
    table.row("write: time", format!("{seconds:.1} s"), format!("{} GiB in {}", gib(bytes), args.preset));
    table.row("write: host memory", format!("{} GiB", gib(peak)), "most anonymous memory above the start");
    Ok(())
}
