//! Checkpoints in the artifact store: listed in the database after every file is in place, removed in the reverse order.

use std::path::Path;

use artifacts::{Artifacts, ArtifactsError};
use chassis::{JobContext, JobError};
use domain::dataset::DatasetFile;
use store::metrics;
use store::runs::{self, Checkpoint, Run};

/// Stores a local folder file by file.
///
/// # Errors
/// When the store refuses.
pub async fn store_dir(
    artifacts: &Artifacts,
    dir: &Path,
    prefix: &str,
) -> Result<Vec<DatasetFile>, ArtifactsError> {
    let mut files = Vec::new();
    for path in local_files(dir)? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let stored = artifacts.put_file(&format!("{prefix}/{name}"), &path).await?;
        files.push(DatasetFile { path: name, ..stored });
    }
    Ok(files)
}

fn local_files(dir: &Path) -> Result<Vec<std::path::PathBuf>, ArtifactsError> {
    let io = |source| ArtifactsError::Io { path: dir.into(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Whether every file of a listed checkpoint is there with its hash; a damaged one is passed over for the one before.
pub async fn is_whole(artifacts: &Artifacts, checkpoint: &Checkpoint) -> bool {
    for file in &checkpoint.files {
        let key = format!("{}/{}", checkpoint.prefix, file.path);
        if let Err(error) = artifacts.get_verified(&key, &file.sha256).await {
            tracing::warn!(%error, step = checkpoint.step, "checkpoint is not whole");
            return false;
        }
    }
    true
}

/// The checkpoint with the best value of the metric that the specification names, measured at its own step.
///
/// # Errors
/// When the database refuses.
pub async fn best(ctx: &JobContext, run: &Run) -> Result<Option<(u32, f64)>, JobError> {
    let values = metrics::of_run(&ctx.store, run.id, Some(&run.spec.best_metric)).await?;
    let steps: Vec<u32> = runs::checkpoints(&ctx.store, run.id).await?.iter().map(|c| c.step).collect();
    let sign = if domain::run::more_is_better(&run.spec.best_metric) { -1.0 } else { 1.0 };
    Ok(values
        .iter()
        .filter(|p| steps.contains(&p.step))
        .min_by(|a, b| (sign * a.value).total_cmp(&(sign * b.value)))
        .map(|p| (p.step, p.value)))
}

/// Keeps the newest checkpoints, the best one and those that an open run goes on from; a row goes before its files.
///
/// # Errors
/// When database or store refuse.
pub async fn prune(ctx: &JobContext, run: &Run) -> Result<(), JobError> {
    let Some(keep) = run.spec.num_ckpt_keep else { return Ok(()) };
    let all = runs::checkpoints(&ctx.store, run.id).await?;
    let surplus = all.len().saturating_sub(keep as usize);
    if surplus == 0 {
        return Ok(());
    }
    let best = best(ctx, run).await?.map(|(step, _)| step);
    for old in all.iter().take(surplus).filter(|c| Some(c.step) != best) {
        if runs::is_resumed_from(&ctx.store, old.id).await? {
            continue;
        }
        runs::remove_checkpoint(&ctx.store, ctx.claim, old.id).await?;
        ctx.artifacts.delete_prefix(&old.prefix).await?;
    }
    Ok(())
}
