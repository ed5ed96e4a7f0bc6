//! `ppx jobs`

use clap::Subcommand;
use serde_json::json;

use client::{Client, Result, WaitOptions};
use domain::JobId;
use domain::event::JobEvent;

use super::Context;
use super::output::{Output, shortened};

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// The newest jobs.
    List {
        /// Only of this kind, e.g. `train`.
        #[arg(long, default_value = "")]
        kind: String,
        /// Only in this state, e.g. `failed`.
        #[arg(long, default_value = "")]
        state: String,
        /// Only for this resource, e.g. a dataset id.
        #[arg(long, default_value = "")]
        subject: String,
        /// Rows at most.
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// One job.
    Get {
        /// Id.
        job: JobId,
    },
    /// What happened to a job.
    Events {
        /// Id.
        job: JobId,
        /// Go on until the job has ended; the exit code tells how.
        #[arg(short, long)]
        follow: bool,
    },
    /// Ask a job to stop.
    Cancel {
        /// Id.
        job: JobId,
    },
}

pub(crate) async fn run(command: JobsCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    match command {
        JobsCommand::List { kind, state, subject, limit } => {
            let list = client.jobs(&kind, &state, &subject, limit).await?;
            context.out.table(&["id", "kind", "state", "attempt", "progress", "created_at"], &list.data);
        }
        JobsCommand::Get { job } => context.out.show(&client.job(job).await?),
        JobsCommand::Cancel { job } => context.out.show(&client.cancel_job(job).await?),
        JobsCommand::Events { job, follow } => events(&client, context.out, job, follow).await?,
    }
    Ok(())
}

async fn events(client: &Client, out: Output, job: JobId, follow: bool) -> Result<()> {
    if follow {
        client.wait_job(job, &WaitOptions::default(), |event| line(out, event)).await?;
        return Ok(());
    }
    let mut after = 0;
    loop {
        let page = client.job_events(job, after).await?;
        page.data.iter().for_each(|event| line(out, event));
        match page.data.last() {
            Some(last) if page.has_more && last.seq > after => after = last.seq,
            _ => return Ok(()),
        }
    }
}

/// One event a line, also as JSON: a stream is read line by line.
fn line(out: Output, event: &JobEvent) {
    if out.is_json() {
        return out.line(&json!(event).to_string());
    }
    let time = event.created_at.format("%Y-%m-%dT%H:%M:%SZ");
    let data = shortened(event.data.to_string());
    out.line(&format!("{time}  {:4}  {:16}  {data}", event.seq, event.kind));
}
