//! Reports of the training thread to Postgres, many at a time: a dashboard sees a step as soon as the one before it is
//! written.

use chassis::{JobContext, JobError};
use domain::run::MetricPoint;
use serde_json::json;
use store::metrics;
use store::runs::{self, Run};
use tokio::sync::mpsc;

use crate::Report;
use crate::storing::{prune, store_dir};

/// Reports taken up at a time.
const BATCH: usize = 256;

/// Writes reports until the training thread ends. On an error the inbox is dropped, which the thread notices.
pub(crate) async fn relay(
    ctx: &JobContext,
    run: &Run,
    mut inbox: mpsc::Receiver<Report>,
) -> Result<(), JobError> {
    let mut reports = Vec::with_capacity(BATCH);
    while inbox.recv_many(&mut reports, BATCH).await > 0 {
        let (mut points, mut progress) = (Vec::new(), None);
        for report in reports.drain(..) {
            match report {
                Report::Metrics(new) => points.extend(new),
                Report::Encoded { done, total } => progress = Some((done as u64, total as u64, "dialogues")),
                Report::Progress(done, total) => progress = Some((done.into(), total.into(), "steps")),
                Report::Alarm(alarm) => {
                    let alarm = json!(alarm);
                    persist(ctx, || ctx.alarm(&alarm)).await?;
                }
                Report::Checkpoint { step, dir, last, stored } => {
                    // What was measured before it is in the database before it.
                    write(ctx, run, &mut points, &mut progress).await?;
                    checkpoint(ctx, run, step, &dir).await?;
                    if !last {
                        // Stored; only the last one is still needed, for the merge.
                        let _gone = tokio::fs::remove_dir_all(&dir).await;
                    }
                    let _gone = stored.send(());
                }
            }
        }
        write(ctx, run, &mut points, &mut progress).await?;
    }
    Ok(())
}

async fn checkpoint(ctx: &JobContext, run: &Run, step: u32, dir: &std::path::Path) -> Result<(), JobError> {
    let prefix = format!("{}-{step:06}", ctx.attempt_prefix(&format!("runs/{}/checkpoints", run.id)));
    persist(ctx, || async {
        let files = store_dir(&ctx.artifacts, dir, &prefix).await?;
        runs::add_checkpoint(&ctx.store, ctx.claim, run.id, step, &prefix, &files).await?;
        prune(ctx, run).await
    })
    .await
}

async fn write(
    ctx: &JobContext,
    run: &Run,
    points: &mut Vec<MetricPoint>,
    progress: &mut Option<(u64, u64, &'static str)>,
) -> Result<(), JobError> {
    // One statement must not write a row twice; the later number counts.
    points.reverse();
    let mut seen = std::collections::HashSet::new();
    points.retain(|p| seen.insert((p.step, p.name.clone())));
    if !points.is_empty() {
        persist(ctx, || async { Ok(metrics::record(&ctx.store, ctx.claim, run.id, points).await?) }).await?;
        points.clear();
    }
    if let Some((done, total, unit)) = progress.take() {
        persist(ctx, || ctx.progress(done, total, unit)).await?;
    }
    Ok(())
}

/// Again while the database is away: hours of training are not lost to a restart of it.
async fn persist<F: Future<Output = Result<(), JobError>>>(
    ctx: &JobContext,
    mut work: impl FnMut() -> F,
) -> Result<(), JobError> {
    loop {
        match work().await {
            Err(JobError::Transient(code, detail)) if ctx.stop().is_none() => {
                tracing::warn!(%code, detail, "cannot report yet");
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
            done => return done,
        }
    }
}
