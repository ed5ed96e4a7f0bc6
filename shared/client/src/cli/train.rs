//! `ppx train`

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::preflight::{Acknowledge, Preflight, Severity};
use domain::run::TrainingSpec;

use super::output::rounded;
use super::{Context, WaitArgs, progress};

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Id or name of a published dataset.
    #[arg(long, required = true)]
    dataset: Option<String>,
    /// Id or name of the model to start from.
    #[arg(long, required = true)]
    base: Option<String>,
    /// Unique name; the trained model gets it too. Default: `<dataset>-<base>-<time>`.
    #[arg(long)]
    name: Option<String>,
    /// TOML file with fields of the training specification; the options below go before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Optimizer updates.
    #[arg(long)]
    steps: Option<u32>,
    /// Windows per step.
    #[arg(long)]
    batch_size: Option<u32>,
    /// Peak learning rate.
    #[arg(long)]
    lr: Option<f64>,
    /// Rank of the adapters.
    #[arg(long)]
    rank: Option<u32>,
    /// Seconds of a window.
    #[arg(long)]
    duration_sec: Option<f64>,
    /// Seed of adapters and data order.
    #[arg(long)]
    seed: Option<u64>,
    /// Only check data, base, settings, memory and disk; starts nothing, exit code 1 when there is an error.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Accept warnings of the check: codes separated by commas, or `all`.
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    acknowledge: Vec<String>,
    #[command(flatten)]
    wait: WaitArgs,
}

impl TrainArgs {
    /// The specification: defaults, then the file, then the options.
    fn spec(&self) -> Result<TrainingSpec> {
        let mut spec = match &self.config {
            Some(path) => {
                let file = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ClientError::File { path: file.clone(), source })?;
                toml::from_str(&text).map_err(|e| {
                    ClientError::Usage(format!(
                        "{file}: {}",
                        domain::hint::with_hint(e.to_string().trim_end())
                    ))
                })?
            }
            None => TrainingSpec::default(),
        };
        spec.max_steps = self.steps.unwrap_or(spec.max_steps);
        spec.batch_size = self.batch_size.unwrap_or(spec.batch_size);
        spec.optim.lr = self.lr.unwrap_or(spec.optim.lr);
        spec.lora.rank = self.rank.unwrap_or(spec.lora.rank);
        spec.duration_sec = self.duration_sec.unwrap_or(spec.duration_sec);
        spec.seed = self.seed.unwrap_or(spec.seed);
        let faults: Vec<String> =
            spec.faults().into_iter().map(|f| format!("{} {}", f.pointer, f.detail)).collect();
        if faults.is_empty() { Ok(spec) } else { Err(ClientError::Usage(faults.join("; "))) }
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TrainCommand {
    #[command(subcommand)]
    command: Option<LocalCommand>,
    #[command(flatten)]
    start: TrainArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum LocalCommand {
    /// Start the processes of a training on this machine.
    Launch(super::launch::LaunchArgs),
}

pub(crate) async fn command(command: TrainCommand, context: &Context) -> Result<()> {
    match command.command {
        Some(LocalCommand::Launch(args)) => super::launch::launch(args, context).await,
        None => train(command.start, context).await,
    }
}

async fn train(args: TrainArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let spec = args.spec()?;
    // The parser insists on both where there is no subcommand.
    let (Some(dataset), Some(base)) = (&args.dataset, &args.base) else {
        return Err(ClientError::Usage("--dataset and --base are needed".into()));
    };
    let dataset = client.find_dataset(dataset).await?;
    let name = args.name.clone().unwrap_or_else(|| {
        format!("{}-{}-{}", dataset.name, base, chrono::Utc::now().format("%Y%m%d-%H%M%S"))
    });
    if args.dry_run {
        let report = client.check_run(&name, dataset.id, base, &json!(spec)).await?;
        show(&report, context);
        let errors = report.findings.iter().filter(|f| f.severity == Severity::Error).count();
        return if report.passed { Ok(()) } else { Err(ClientError::Preflight { errors }) };
    }
    let acknowledge = match &args.acknowledge[..] {
        [all] if all == "all" => Acknowledge::All(true),
        codes => Acknowledge::Codes(codes.to_vec()),
    };
    let run = client.create_run(&name, dataset.id, base, &json!(spec), &acknowledge).await?;
    let run =
        if args.wait.wait { progress::training(context, &run, &args.wait.options()).await? } else { run };
    context.out.show(&run);
    Ok(())
}

/// The findings as a table, then the numbers.
fn show(report: &Preflight, context: &Context) {
    if context.out.is_json() {
        return context.out.show(report);
    }
    context.out.table(&["severity", "code", "pointer", "detail"], &report.findings);
    for (title, numbers) in
        [("data", json!(report.data)), ("schedule", json!(report.schedule)), ("disk", json!(report.disk))]
    {
        let Value::Object(fields) = numbers else { continue };
        context.out.line(&format!("\n{title}"));
        let rows: Vec<Value> =
            fields.iter().map(|(name, value)| json!({ "name": name, "value": rounded(value) })).collect();
        context.out.table(&["name", "value"], &rows);
    }
    let devices = report.memory.iter().flat_map(|m| &m.devices);
    let rows: Vec<Value> = devices
        .map(|d| {
            let proposal = d.proposal.map(|p| {
                json!({ "batch_size": p.batch_size,
                "num_microbatches": p.num_microbatches, "duration_sec": p.duration_sec })
            });
            let needed = report.memory.as_ref().map(|m| rounded(&json!(m.total_gib)));
            json!({ "device": d.device, "usable_gib": d.usable_gib, "needed_gib": needed, "fits": d.fits,
                "proposal": proposal })
        })
        .collect();
    if !rows.is_empty() {
        context.out.line("\nmemory");
        context.out.table(&["device", "usable_gib", "needed_gib", "fits", "proposal"], &rows);
    }
}
