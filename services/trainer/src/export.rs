//! The numbers of a run beside its checkpoints, for TensorBoard and W&B.

use artifacts::Artifacts;
use chassis::JobError;
use domain::RunId;
use runlog::{Point, log_files};
use store::{Store, metrics};

/// Writes an event file, a history and a summary with all numbers so far to `runs/<id>/logs/`, in place of earlier ones.
/// They are derived from the database, so that an attempt that lost its lease cannot spoil them.
///
/// # Errors
/// When the database or the artifact store refuses.
pub async fn write_logs(store: &Store, artifacts: &Artifacts, run: RunId) -> Result<(), JobError> {
    let timed = metrics::timed(store, run, None).await?;
    let points: Vec<Point> =
        timed.into_iter().map(|(p, at)| Point { step: p.step, name: p.name, value: p.value, at }).collect();
    for (name, bytes) in log_files(&run.to_string(), &points) {
        artifacts.put(&format!("runs/{run}/logs/{name}"), bytes).await?;
    }
    Ok(())
}
