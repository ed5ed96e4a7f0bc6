//! What lies beside the checkpoints of a run.

use serde_json::{Map, json};

use crate::{Point, event_file, history};

/// Names and contents: an event file whose name carries the time of the first number, so that a later writing replaces
/// it, and history and summary in W&B's shape. Nothing without numbers.
#[must_use]
pub fn log_files(run: &str, points: &[Point]) -> Vec<(String, Vec<u8>)> {
    let Some(first) = points.iter().map(|p| p.at).min() else { return Vec::new() };
    let summary: Map<_, _> = points.iter().map(|p| (p.name.clone(), json!(p.value))).collect();
    vec![
        (format!("events.out.tfevents.{}.{run}", first.timestamp()), event_file(points)),
        ("wandb-history.jsonl".into(), history(points).into_bytes()),
        ("wandb-summary.json".into(), format!("{:#}\n", serde_json::Value::from(summary)).into_bytes()),
    ]
}
