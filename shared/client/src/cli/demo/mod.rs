//! `ppx demo`: the whole job on a tiny model, through the public API only.

mod facts;
mod sample;
mod stages;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use client::{Client, ClientError, Result, WaitOptions};

use super::Context;
use facts::Facts;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Dialogues of the dataset.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=5000))]
    dialogues: u32,
    /// Training steps.
    #[arg(long, default_value_t = 24)]
    steps: u32,
    /// The server's import folder, on this machine.
    #[arg(long, env = "PPX_IMPORT_DIR", default_value = ".local/import")]
    import_dir: PathBuf,
    /// Folder for the recording, the transcript and the comparison report.
    #[arg(long, default_value = ".local/demo")]
    out: PathBuf,
    /// Give up on a stage after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

/// What the stages share.
pub(crate) struct Demo<'a> {
    context: &'a Context,
    client: Client,
    args: DemoArgs,
    /// Suffix of every name that this run makes.
    stamp: String,
    stages_begun: u32,
    facts: Facts,
}

const STAGES: u32 = 6;

pub(crate) async fn run(args: DemoArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let mut demo = Demo {
        context,
        client,
        args,
        stamp: super::evaluate::stamp(),
        stages_begun: 0,
        facts: Facts::default(),
    };
    let begun = Instant::now();
    let outcome = Box::pin(demo.whole()).await;
    if let Err(error) = outcome {
        demo.explain(&error).await;
        return Err(error);
    }
    demo.facts.total = begun.elapsed();
    demo.facts.docs = demo.client.url("/docs/")?.to_string();
    if context.out.is_json() {
        context.out.show(&demo.facts.json());
    } else {
        demo.facts.print(context.out);
    }
    Ok(())
}

impl Demo<'_> {
    async fn whole(&mut self) -> Result<()> {
        self.heading("Model: tiny, random weights (seed 0)");
        let base = self.timed("model", Self::model).await?;
        self.heading("Dataset: generate, speak, align, publish");
        let dataset = self.timed("dataset", Self::dataset).await?;
        self.heading("Training: adapters on the tiny model, then merged");
        let tuned = self.timed("training", async |demo| demo.training(&dataset, &base).await).await?;
        self.heading("Session: a live conversation with the trained model, context injected on the way");
        self.timed("session", async |demo| demo.session(&dataset, &tuned).await).await?;
        self.heading("Evaluation: the base and the trained model play the held-out dialogues");
        let pair =
            self.timed("evaluation", async |demo| demo.evaluations(&dataset, &base, &tuned).await).await?;
        self.heading("Comparison: pairwise, with statistics");
        self.timed("comparison", async |demo| demo.comparison(&pair).await).await
    }

    fn heading(&mut self, text: &str) {
        self.stages_begun += 1;
        self.say(&format!("\n[{}/{STAGES}] {text}", self.stages_begun));
    }

    /// A line for people; a JSON run keeps stdout for its document.
    fn say(&self, text: &str) {
        if self.context.out.is_json() { self.context.out.note(text) } else { self.context.out.line(text) }
    }

    async fn timed<T>(
        &mut self,
        stage: &'static str,
        work: impl AsyncFnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let begun = Instant::now();
        let done = work(self).await?;
        let took = begun.elapsed();
        self.facts.stages.push((stage, took));
        self.say(&format!("      done in {:.1} s", took.as_secs_f64()));
        Ok(done)
    }

    fn wait(&self) -> WaitOptions {
        WaitOptions { timeout: Duration::from_secs(self.args.timeout), ..WaitOptions::default() }
    }

    /// What failed and what to look at next; the error itself is printed by the caller.
    async fn explain(&self, error: &ClientError) {
        let out = self.context.out;
        out.note(&format!("\nThe demo stopped in stage {} of {STAGES}.", self.stages_begun));
        match error {
            ClientError::JobFailed { job, .. } => {
                if let Ok(view) = self.client.job(*job).await {
                    out.note(&format!("The {} job failed in attempt {}.", view.kind.as_str(), view.attempt));
                }
                out.note(&format!(
                    "next: `ppx jobs events {job}` shows its history, the service's log the reason"
                ));
            }
            ClientError::JobCancelled { job } => {
                out.note(&format!("next: `ppx jobs events {job}` shows who stopped it; run the demo again"));
            }
            ClientError::TimedOut { .. } => {
                out.note(
                    "next: `ppx jobs list` shows what still runs or waits; a worker may be down or busy",
                );
            }
            ClientError::Unreachable { .. } => {
                out.note("next: `make up` starts the stack, `ppx doctor` checks it");
            }
            ClientError::Problem(problem) if problem.status == 401 || problem.status == 403 => {
                out.note("next: set PPX_API_KEY; `. .local/client.env` does for a stack of `make up`");
            }
            _ => {
                out.note("next: `ppx doctor` checks the stack, `ppx jobs list --state failed` shows failures")
            }
        }
    }
}
