//! What came out of a run, in one document.

use chassis::{JobContext, JobError};
use domain::run::MetricPoint;
use serde_json::json;
use store::metrics;
use store::runs::Run;

use crate::{Outcome, storing};

/// Loss first and last are means over up to five steps at either end: single batches are noisy.
pub(crate) async fn summary(
    ctx: &JobContext,
    run: &Run,
    outcome: &Outcome,
    wall_s: f64,
) -> Result<serde_json::Value, JobError> {
    let points = metrics::of_run(&ctx.store, run.id, None).await?;
    let series = |name: &str| points.iter().filter(|p| p.name == name).collect::<Vec<&MetricPoint>>();
    let mean = |part: &[&MetricPoint]| {
        (!part.is_empty()).then(|| part.iter().map(|p| p.value).sum::<f64>() / part.len() as f64)
    };
    let (loss, eval) = (series("train/loss"), series("eval/loss"));
    let tail = loss.len().saturating_sub(5);
    let best = storing::best(ctx, run).await?;
    Ok(json!({
        "steps": outcome.steps,
        "loss_first": mean(loss.get(..loss.len().min(5)).unwrap_or_default()),
        "loss_last": mean(loss.get(tail..).unwrap_or_default()),
        "eval_loss_first": eval.first().map(|p| p.value),
        "eval_loss_last": eval.last().map(|p| p.value),
        "best_step": best.map(|(step, _)| step),
        "best_value": best.map(|(_, value)| value),
        "best_metric": run.spec.best_metric,
        "skipped_steps": outcome.skipped,
        "alarms": outcome.alarms,
        "frames_per_s": outcome.frames_per_s,
        "wall_s": wall_s,
        "trainable_parameters": outcome.parameters,
        "windows_train": outcome.windows.0,
        "windows_eval": outcome.windows.1,
    }))
}
