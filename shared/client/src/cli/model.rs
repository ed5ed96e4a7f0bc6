//! `ppx model`: model files on this machine, without a server and without libtorch.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use client::{ClientError, Result};
use weights::lora::{LoraError, MergeReport};
use weights::{
    CheckpointInfo, ConvertOptions, ConvertReport, Dtype, InitOptions, ModelConfig, ModelInfo, WeightsError,
    WriteOptions,
};

use super::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Write a model with random weights.
    Init(InitArgs),
    /// Show spelling, sizes, types, hashes and the configuration.
    Inspect {
        /// Model directory, weights file or shard index.
        path: PathBuf,
    },
    /// Check that the files are whole and every tensor has its name, shape and type.
    Verify {
        /// Model directory, weights file or shard index.
        path: PathBuf,
        #[command(flatten)]
        shape: ShapeArgs,
    },
    /// Write weights of any spelling, in one file or shards, under the published names.
    Convert(ConvertArgs),
    /// Write a model with an adapter merged into it.
    Merge {
        /// Model directory; only read.
        base: PathBuf,
        /// Adapter directory, in kyutai's or PEFT's form.
        adapter: PathBuf,
        /// Directory to make.
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Which shape.
    #[arg(long, default_value = "tiny", value_parser = presets())]
    preset: String,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// SentencePiece model, for presets that carry none.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Most bytes in one file, e.g. 5GB; more are written in shards.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    shard_size: Option<u64>,
    /// Directory to make.
    dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ShapeArgs {
    /// Sizes to expect of weights that no config.json lies beside; those of personaplex-7b when not given.
    #[arg(long, value_parser = presets())]
    preset: Option<String>,
    /// A config.json with the sizes to expect.
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// Model directory, weights file or shard index.
    input: PathBuf,
    /// Directory to make of a directory, file to make of a file.
    output: PathBuf,
    #[command(flatten)]
    shape: ShapeArgs,
    /// The input is a plain Moshi model: give it the second eight depformer steps.
    #[arg(long)]
    init_from_moshi: bool,
    /// Type of the language model's weights; as they are when not given.
    #[arg(long)]
    dtype: Option<WeightType>,
    /// Most bytes in one file, e.g. 5GB; more are written in shards.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    shard_size: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WeightType {
    F32,
    Bf16,
}

fn presets() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(weights::preset_names())
}

/// A number of bytes, with an optional decimal unit.
fn size(text: &str) -> std::result::Result<u64, String> {
    let text = text.to_ascii_uppercase();
    let number = text.trim_end_matches('B').trim_end_matches(['K', 'M', 'G']);
    let factor = match text.trim_end_matches('B').chars().last() {
        Some('K') => 1_000,
        Some('M') => 1_000_000,
        Some('G') => 1_000_000_000,
        _ => 1,
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).filter(|n| *n > 0);
    bytes.ok_or_else(|| "expected a size such as 5GB, 500MB or a number of bytes".into())
}

impl ShapeArgs {
    fn read(&self) -> std::result::Result<Option<ModelConfig>, WeightsError> {
        match (&self.preset, &self.config) {
            (Some(preset), _) => ModelConfig::preset(preset).map(Some),
            (None, Some(path)) => ModelConfig::read(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Runs one of the commands.
pub(crate) fn local(command: ModelCommand, context: &Context) -> Result<()> {
    match command {
        ModelCommand::Init(args) => show(&init(&args).map_err(|e| bad_model(&e))?, context),
        ModelCommand::Inspect { path } => {
            exists(&path)?;
            if is_model(&path) {
                show(&weights::inspect(&path).map_err(|e| bad_model(&e))?, context);
            } else {
                show_checkpoint(&weights::inspect_checkpoint(&path).map_err(|e| bad_model(&e))?, context);
            }
        }
        ModelCommand::Verify { path, shape } => verify(&path, &shape, context)?,
        ModelCommand::Convert(args) => convert(&args, context)?,
        ModelCommand::Merge { base, adapter, out } => {
            exists(&base)?;
            exists(&adapter)?;
            let merged = weights::lora::merge_model(&base, &adapter, &out);
            show_merge(&merged.map_err(|e| bad_merge(&e))?, context);
        }
    }
    Ok(())
}

/// A path that is not there is a wrong argument, not a damaged model. A file name may stand for the index beside it.
fn exists(path: &Path) -> Result<()> {
    if path.exists() || weights::index_path(path).exists() {
        return Ok(());
    }
    Err(ClientError::Usage(format!("there is no {}", path.display())))
}

fn is_model(path: &Path) -> bool {
    path.is_dir() && path.join(weights::CONFIG_FILE).exists()
}

fn init(args: &InitArgs) -> std::result::Result<ModelInfo, WeightsError> {
    let config = ModelConfig::preset(&args.preset)?;
    let read = |path: &PathBuf| {
        weights::check_tokenizer_of(path, &config)?;
        std::fs::read(path).map_err(|source| WeightsError::Io { action: "read", path: path.clone(), source })
    };
    let tokenizer = match &args.tokenizer {
        Some(path) => read(path)?,
        None => weights::preset_tokenizer(&args.preset)?.to_vec(),
    };
    let write = WriteOptions { shard_size: args.shard_size, threads: None };
    weights::init_model_as(&args.dir, &config, &tokenizer, InitOptions { seed: args.seed, write })
}

fn verify(path: &Path, shape: &ShapeArgs, context: &Context) -> Result<()> {
    exists(path)?;
    if is_model(path) {
        show(&weights::verify(path).map_err(|e| bad_model(&e))?, context);
        return Ok(());
    }
    let checked = shape.read().and_then(|config| {
        weights::verify_weights(path, config.as_ref())?;
        weights::inspect_checkpoint(path)
    });
    show_checkpoint(&checked.map_err(|e| bad_model(&e))?, context);
    Ok(())
}

fn convert(args: &ConvertArgs, context: &Context) -> Result<()> {
    exists(&args.input)?;
    let dtype = args.dtype.map(|t| match t {
        WeightType::F32 => Dtype::F32,
        WeightType::Bf16 => Dtype::BF16,
    });
    let write = WriteOptions { shard_size: args.shard_size, threads: None };
    let report = args.shape.read().and_then(|config| {
        let options = ConvertOptions { config, dtype, init_from_moshi: args.init_from_moshi, write };
        weights::convert(&args.input, &args.output, &options)
    });
    show_conversion(&report.map_err(|e| bad_model(&e))?, context);
    Ok(())
}

fn show(info: &ModelInfo, context: &Context) {
    if context.out.is_json() {
        return context.out.show(info);
    }
    let line = |key: &str, value: &str| context.out.line(&format!("{key:17} {value}"));
    line("name", &info.config.name);
    for (what, part) in [("lm", &info.lm), ("codec", &info.mimi)] {
        line(&format!("{what} parameters"), &part.parameters.to_string());
        line(&format!("{what} tensors"), &tensors(part));
        line(&format!("{what} spelling"), &part.spelling);
        line(&format!("{what} sha256"), &part.sha256);
    }
    let lm = &info.config.lm;
    let sizes = format!("{} layers of {}, {} depformer steps", lm.num_layers, lm.dim, lm.dep_q);
    line("lm sizes", &sizes);
    line("tokenizer", &info.config.tokenizer);
    context.out.table(&["name", "bytes", "sha256"], &info.files);
}

fn show_checkpoint(info: &CheckpointInfo, context: &Context) {
    if context.out.is_json() {
        return context.out.show(info);
    }
    let line = |key: &str, value: &str| context.out.line(&format!("{key:17} {value}"));
    line("parameters", &info.parameters.to_string());
    line("tensors", &tensors(info));
    line("spelling", &info.spelling);
    line("sha256", &info.sha256);
    for (key, value) in &info.metadata {
        line(key, value);
    }
    context.out.table(&["name", "bytes", "sha256"], &info.files);
}

/// `475 (473 BF16, 2 F32)`
fn tensors(info: &CheckpointInfo) -> String {
    let kinds: Vec<String> = info.dtypes.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} ({})", info.tensors, kinds.join(", "))
}

fn show_conversion(report: &ConvertReport, context: &Context) {
    if context.out.is_json() {
        return context.out.show(report);
    }
    context.out.line(&format!("{:17} {}", "read", report.from));
    if let Some(done) = &report.adaptation {
        context.out.line(&format!("{:17} {done}", "from moshi"));
    }
    show_checkpoint(&report.written, context);
}

fn show_merge(report: &MergeReport, context: &Context) {
    #[derive(Serialize)]
    struct View(serde_json::Value);
    context.out.show(&View(json!({
        "merged": report.merged,
        "worst_error": report.worst_error,
        "unchanged": report.unchanged,
        "base_named": report.base_named,
        "base_sha256": report.base_sha256,
        "merged_sha256": report.merged_sha256,
    })));
}

/// Wrong arguments are the caller's; everything else is wrong with the files.
pub(crate) fn bad_model(error: &WeightsError) -> ClientError {
    match error {
        WeightsError::Exists { .. }
        | WeightsError::UnknownPreset { .. }
        | WeightsError::NoTokenizer { .. }
        | WeightsError::BadShardSize { .. } => ClientError::Usage(error.to_string()),
        _ => ClientError::Model(error.to_string()),
    }
}

fn bad_merge(error: &LoraError) -> ClientError {
    match error {
        LoraError::Weights(error) => bad_model(error),
        _ => ClientError::Model(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_units() {
        for (text, bytes) in [("5GB", 5_000_000_000), ("500m", 500_000_000), ("7kb", 7_000), ("12", 12)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "GB", "-1", "1.5G", "5TB", "99999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
