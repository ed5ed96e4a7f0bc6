//! `ppx train` and `ppx runs`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::RunId;
use domain::run::TrainingSpec;

use super::{Context, WaitArgs, progress};

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Id or name of a published dataset.
    #[arg(long)]
    dataset: String,
    /// Id or name of the model to start from.
    #[arg(long)]
    base: String,
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

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// The newest trainings.
    List,
    /// One training.
    Get {
        /// Id.
        run: RunId,
    },
    /// Numbers of a training, step by step.
    Metrics {
        /// Id.
        run: RunId,
        /// One metric, e.g. `train/loss`; all without it.
        #[arg(long, default_value = "")]
        name: String,
    },
}

pub(crate) async fn train(args: TrainArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let spec = args.spec()?;
    let dataset = client.find_dataset(&args.dataset).await?;
    let name = args.name.clone().unwrap_or_else(|| {
        format!("{}-{}-{}", dataset.name, args.base, chrono::Utc::now().format("%Y%m%d-%H%M%S"))
    });
    let run = client.create_run(&name, dataset.id, &args.base, &json!(spec)).await?;
    let run =
        if args.wait.wait { progress::training(context, &run, &args.wait.options()).await? } else { run };
    context.out.show(&run);
    Ok(())
}

pub(crate) async fn runs(command: RunsCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    match command {
        RunsCommand::List => {
            let list = client.training_runs(50).await?;
            context.out.table(&["id", "name", "state", "model_id", "created_at"], &list.data);
        }
        RunsCommand::Get { run } => context.out.show(&client.training_run(run).await?),
        RunsCommand::Metrics { run, name } => {
            let rows: Vec<Value> =
                client.run_metrics(run, &name).await?.data.iter().map(|p| json!(p)).collect();
            context.out.table(&["step", "name", "value"], &rows);
        }
    }
    Ok(())
}
