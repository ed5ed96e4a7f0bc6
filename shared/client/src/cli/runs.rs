//! `ppx runs`

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::RunId;

use super::session::write;
use super::{Context, archive};

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
    /// Stop a training after its current step, for good.
    Cancel {
        /// Id.
        run: RunId,
    },
    /// Save after the current step and give the device free.
    Pause {
        /// Id.
        run: RunId,
    },
    /// Go on with a paused training.
    Resume {
        /// Id.
        run: RunId,
    },
    /// Checkpoints that a training has kept.
    Checkpoints {
        /// Id.
        run: RunId,
    },
    /// The adapter of a kept checkpoint, as a folder or (when the name ends in .tar) an archive.
    Adapter {
        /// Id.
        run: RunId,
        /// Where to; must not exist.
        out: PathBuf,
        /// Optimizer update of the checkpoint; the newest without it.
        #[arg(long)]
        step: Option<u32>,
        /// `kyutai` (Moshi's own server) or `peft`.
        #[arg(long, default_value = "kyutai", value_parser = ["kyutai", "peft"])]
        layout: String,
    },
    /// Numbers or the loss curve of a training as a file: the ending of its name decides (csv, parquet, jsonl,
    /// tfevents, png).
    Export {
        /// Id.
        run: RunId,
        /// Where to.
        out: PathBuf,
    },
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
        RunsCommand::Cancel { run } => context.out.show(&client.steer_training(run, "cancel").await?),
        RunsCommand::Pause { run } => context.out.show(&client.steer_training(run, "pause").await?),
        RunsCommand::Resume { run } => context.out.show(&client.steer_training(run, "resume").await?),
        RunsCommand::Checkpoints { run } => {
            let list = client.run_checkpoints(run).await?;
            context.out.table(&["step", "id", "created_at"], &list.data);
        }
        RunsCommand::Adapter { run, out, step, layout } => {
            let step = step.map(|s| s.to_string());
            let mut query = vec![("layout", layout.as_str())];
            query.extend(step.as_deref().map(|s| ("step", s)));
            let bytes =
                archive::fetch(&client, &format!("/v1/runs/{run}/adapter"), &query, &out, context).await?;
            context.out.show(&json!({ "run": run, "out": out, "bytes": bytes }));
        }
        RunsCommand::Export { run, out } => {
            let ending = out.extension().and_then(|e| e.to_str()).unwrap_or("").to_lowercase();
            let bytes = match ending.as_str() {
                "png" => client.download(&format!("/v1/runs/{run}/loss.png"), &[]).await?,
                "csv" | "parquet" | "jsonl" | "tfevents" => {
                    client.download(&format!("/v1/runs/{run}/metrics"), &[("format", ending)]).await?
                }
                _ => {
                    let text = "the name must end in csv, parquet, jsonl, tfevents or png";
                    return Err(ClientError::Usage(format!("{}: {text}", out.display())));
                }
            };
            write(&out, &bytes)?;
            context.out.show(&json!({ "file": out.display().to_string(), "bytes": bytes.len() }));
        }
    }
    Ok(())
}
