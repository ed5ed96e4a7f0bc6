//! `ppx evaluate` and `ppx compare`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use client::views::ComparisonView;
use client::{Client, Result};
use domain::evaluation::EvaluationSpec;

use super::output::{Output, rounded};
use super::session::write;
use super::{Context, WaitArgs, progress};

#[derive(Debug, Args)]
pub(crate) struct EvaluateArgs {
    /// Id or name of a published dataset.
    #[arg(long)]
    dataset: String,
    /// Id or name of the model.
    #[arg(long)]
    model: String,
    /// Unique name. Default: `<model>-<time>`.
    #[arg(long)]
    name: Option<String>,
    /// Eval dialogues at most.
    #[arg(long, default_value_t = 20)]
    max_dialogues: u32,
    /// Seconds of each dialogue at most.
    #[arg(long, default_value_t = 240.0)]
    max_seconds: f64,
    /// Seed of the sessions.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    wait: WaitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Id or name of the evaluation to compare against.
    baseline: String,
    /// Id or name of the evaluation in question.
    candidate: String,
    /// Unique name. Default: `<baseline>-<candidate>-<time>`.
    #[arg(long)]
    name: Option<String>,
    /// Folder for report.html and report.json; implies --wait.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) async fn evaluate(args: EvaluateArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let dataset = client.find_dataset(&args.dataset).await?;
    let name = args.name.unwrap_or_else(|| format!("{}-{}", args.model, stamp()));
    let spec =
        EvaluationSpec { max_dialogues: args.max_dialogues, max_seconds: args.max_seconds, seed: args.seed };
    let mut evaluation = client.create_evaluation(&name, dataset.id, &args.model, &json!(spec)).await?;
    if args.wait.wait {
        progress::job(context, evaluation.job_id, "evaluation", &args.wait.options()).await?;
        evaluation = client.evaluation(evaluation.id).await?;
    }
    context.out.show(&evaluation);
    metrics(context.out, evaluation.summary.as_ref(), &["n", "mean", "median"]);
    Ok(())
}

pub(crate) async fn compare(args: CompareArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let baseline = client.find_evaluation(&args.baseline).await?;
    let candidate = client.find_evaluation(&args.candidate).await?;
    let name = args.name.unwrap_or_else(|| format!("{}-{}-{}", baseline.name, candidate.name, stamp()));
    let mut comparison = client.create_comparison(&name, baseline.id, candidate.id).await?;
    if args.wait.wait || args.out.is_some() {
        progress::job(context, comparison.job_id, "comparison", &args.wait.options()).await?;
        comparison = client.comparison(comparison.id).await?;
    }
    context.out.show(&comparison);
    metrics(
        context.out,
        comparison.summary.as_ref(),
        &["n", "mean_a", "mean_b", "mean_diff", "p_adjusted", "verdict"],
    );
    if let Some(folder) = &args.out {
        let html = fetch_reports(&client, &comparison, folder).await?;
        context.out.note(&format!("report: {}", html.display()));
    }
    Ok(())
}

/// The metrics of a summary as a table for people; a JSON document holds them already.
fn metrics(out: Output, summary: Option<&Value>, columns: &[&str]) {
    let Some(metrics) = summary.and_then(|s| s["metrics"].as_object()) else { return };
    if out.is_json() {
        return;
    }
    let row = |(name, facts): (&String, &Value)| {
        let facts = columns.iter().map(|column| ((*column).to_owned(), rounded(&facts[*column])));
        let named = std::iter::once(("metric".to_owned(), Value::from(name.as_str())));
        Value::Object(named.chain(facts).collect())
    };
    let rows: Vec<Value> = metrics.iter().map(row).collect();
    out.line("");
    out.table(&[&["metric"], columns].concat(), &rows);
}

/// Writes both reports of a finished comparison into a folder; the path of the page.
pub(crate) async fn fetch_reports(
    client: &Client,
    comparison: &ComparisonView,
    folder: &Path,
) -> Result<PathBuf> {
    for file in ["report.json", "report.html"] {
        write(&folder.join(file), &client.comparison_report(comparison.id, file).await?)?;
    }
    Ok(folder.join("report.html"))
}

pub(crate) fn stamp() -> String {
    chrono::Utc::now().format("%Y%m%d-%H%M%S").to_string()
}
