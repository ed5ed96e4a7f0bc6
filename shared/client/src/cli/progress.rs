//! Waiting with something to look at.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::ProgressBar;

use client::views::{DatasetView, JobView, RunView};
use client::{Client, ClientError, Result, WaitOptions};
use domain::event::JobEvent;
use domain::job::{JobKind, JobState, Progress};
use domain::{ErrorCode, JobId};

use super::Context;

/// How often a bar asks for what events do not tell.
const LOOK: Duration = Duration::from_millis(700);

/// Waits for a job with a bar of its units.
pub(crate) async fn job(
    context: &Context,
    id: Option<JobId>,
    label: &str,
    options: &WaitOptions,
) -> Result<JobView> {
    let id = known(id)?;
    let bar = context.out.bar(label);
    let ended = context.client()?.wait_job(id, options, |event| show(&bar, event)).await;
    bar.finish_and_clear();
    ended
}

/// Waits for a dataset; the bar counts its jobs by stage.
pub(crate) async fn dataset(
    context: &Context,
    dataset: &DatasetView,
    options: &WaitOptions,
) -> Result<DatasetView> {
    let client = context.client()?;
    let bar = context.out.bar("dataset");
    let subject = dataset.id.to_string();
    let ended = beside(client.wait_job(known(dataset.job_id)?, options, |_| {}), async || {
        if let Ok(jobs) = client.jobs("", "", &subject, 100).await {
            let done = jobs.data.iter().filter(|j| j.state == JobState::Succeeded).count();
            bar.set_length(jobs.data.len() as u64);
            bar.set_position(done as u64);
            bar.set_message(stages(&jobs.data));
        }
    })
    .await;
    bar.finish_and_clear();
    match ended {
        Ok(_) => client.dataset(dataset.id).await,
        Err(error) => Err(cause(&client, &subject, error).await),
    }
}

/// Waits for a training; the bar shows the loss.
pub(crate) async fn training(context: &Context, run: &RunView, options: &WaitOptions) -> Result<RunView> {
    let client = context.client()?;
    let bar = context.out.bar("training");
    let ended = beside(client.wait_job(known(run.job_id)?, options, |event| show(&bar, event)), async || {
        if let Ok(points) = client.run_metrics(run.id, "train/loss").await
            && let (Some(first), Some(last)) = (points.data.first(), points.data.last())
        {
            bar.set_message(format!("loss {:.3} -> {:.3}", first.value, last.value));
        }
    })
    .await;
    bar.finish_and_clear();
    ended?;
    client.training_run(run.id).await
}

/// The job of a resource that has one.
fn known(id: Option<JobId>) -> Result<JobId> {
    id.ok_or_else(|| ClientError::Usage("the server names no job to wait for".into()))
}

/// Runs `look` again and again until `wait` is over.
async fn beside<T>(wait: impl Future<Output = T>, mut look: impl AsyncFnMut()) -> T {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            done = &mut wait => return done,
            () = async { look().await; tokio::time::sleep(LOOK).await } => {}
        }
    }
}

fn show(bar: &ProgressBar, event: &JobEvent) {
    match event.kind.as_str() {
        "job.progress" => {
            if let Ok(progress) = serde_json::from_value::<Progress>(event.data.clone()) {
                bar.set_length(progress.total);
                bar.set_position(progress.done);
            }
        }
        "job.retrying" => bar.set_message("trying again"),
        _ => {}
    }
}

/// `generate 3/3  render 1/3  …`
fn stages(jobs: &[JobView]) -> String {
    let mut counts: BTreeMap<usize, (JobKind, usize, usize)> = BTreeMap::new();
    for job in jobs {
        let order = JobKind::ALL.iter().position(|k| *k == job.kind).unwrap_or(usize::MAX);
        let entry = counts.entry(order).or_insert((job.kind, 0, 0));
        entry.1 += usize::from(job.state == JobState::Succeeded);
        entry.2 += 1;
    }
    let text: Vec<String> =
        counts.values().map(|(kind, done, all)| format!("{} {done}/{all}", kind.as_str())).collect();
    text.join("  ")
}

/// The job that failed first, where the one we waited for only failed since it needed it.
async fn cause(client: &Client, subject: &str, error: ClientError) -> ClientError {
    if error.code() != Some(ErrorCode::NeedFailed.as_str()) {
        return error;
    }
    let Ok(failed) = client.jobs("", JobState::Failed.as_str(), subject, 100).await else { return error };
    let roots = failed.data.into_iter().filter_map(|job| job.error.map(|failure| (job.id, failure)));
    match roots.into_iter().rfind(|(_, failure)| failure.code != ErrorCode::NeedFailed.as_str()) {
        Some((job, failure)) => ClientError::JobFailed { job, code: failure.code, detail: failure.detail },
        None => error,
    }
}
