//! The `evaluate` job: every held-out dialogue once, measured and recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use chassis::{Completion, JobContext, JobError, JobHandler};
use client::Client;
use domain::job::{JobKind, JobSpec};
use domain::{ErrorCode, EvaluationId};
use store::evaluations::{self, Evaluation, Score};
use store::models;

use crate::drive::{self, Played};
use crate::losses;
use crate::metrics::{Measured, measure};
use crate::scenario::{self, Scenario};
use crate::stats::{mean, median};

/// Plays dialogues through the gateway.
#[derive(Debug)]
pub struct EvaluateHandler {
    /// The gateway's client.
    pub client: Client,
}

#[chassis::async_trait]
impl JobHandler for EvaluateHandler {
    fn kind(&self) -> JobKind {
        JobKind::Evaluate
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Evaluate { evaluation_id } = spec else {
            return Err(JobError::permanent(ErrorCode::Internal, format!("no evaluate job: {spec:?}")));
        };
        self.evaluate(ctx, evaluation_id).await
    }
}

impl EvaluateHandler {
    async fn evaluate(&self, ctx: &JobContext, id: EvaluationId) -> Result<Completion, JobError> {
        let evaluation = evaluations::get(&ctx.store, id).await?;
        let limit = usize::try_from(evaluation.spec.max_dialogues).unwrap_or(usize::MAX);
        let dialogues = scenario::held_out(&ctx.artifacts, evaluation.dataset_id, limit).await?;
        let total = dialogues.len() as u64;
        let folder = ctx.attempt_prefix(&format!("evaluations/{id}"));
        let mut scores = Vec::new();
        for (number, (wav, sidecar)) in (0u64..).zip(&dialogues) {
            ctx.progress(number, total, "dialogues").await?;
            let scenario = scenario::load(&ctx.artifacts, wav, sidecar, evaluation.spec.max_seconds).await?;
            let played = self.play(ctx, &evaluation, &scenario, number).await?;
            scores.push(record(ctx, &folder, scenario, played).await?);
        }
        ctx.progress(total, total, "dialogues").await?;
        let summary = summary(ctx, &evaluation, &scores).await?;
        Ok(Completion::Evaluated { evaluation: id, summary, scores })
    }

    /// One session; ends early when the job should stop.
    async fn play(
        &self,
        ctx: &JobContext,
        evaluation: &Evaluation,
        scenario: &Scenario,
        number: u64,
    ) -> Result<Played, JobError> {
        let seed = evaluation.spec.seed.wrapping_add(number);
        let playing = drive::play(&self.client, evaluation.model_id, scenario, seed);
        tokio::select! {
            played = Box::pin(playing) => played.map_err(|e| drive::job_error(&scenario.dialogue, &e)),
            stopped = stopped(ctx) => Err(stopped),
        }
    }
}

/// Returns when the job should stop, for whatever reason: a session is long.
async fn stopped(ctx: &JobContext) -> JobError {
    loop {
        if let Some(stop) = ctx.stop() {
            return JobError::Stopped(stop);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Measures a played dialogue, keeps its recording and its transcript.
async fn record(
    ctx: &JobContext,
    folder: &str,
    scenario: Scenario,
    played: Played,
) -> Result<Score, JobError> {
    let dialogue = scenario.dialogue.clone();
    let transcript = json!({
        "dialogue": dialogue,
        "session_id": played.session,
        "transcript": played.conversation.transcript(),
        "texts": played.conversation.texts,
        "events": played.conversation.events,
        "injections": scenario.injections,
        "stats": played.stats,
        "opus_bad_pages": played.conversation.opus.bad_pages,
    });
    let worked = tokio::task::spawn_blocking(move || {
        let conversation = &played.conversation;
        let values = measure(&Measured {
            agent: &conversation.agent,
            user: &conversation.user,
            user_turns: &scenario.user_turns,
            texts: &conversation.texts,
            injections_sent: scenario.injections.len(),
            injections_rejected: conversation.rejections().len(),
            hidden: &conversation.hidden_spans(),
            pieces_while_hidden: conversation.pieces_while_hidden(),
            stats: &played.stats,
        });
        audio::wav::encode_pcm16(&conversation.stereo()).map(|wav| (values, wav))
    });
    let internal = |e: &dyn std::fmt::Display| JobError::permanent(ErrorCode::Internal, e);
    let (metrics, wav) = worked.await.map_err(|e| internal(&e))?.map_err(|e| internal(&e))?;
    let recording = format!("{folder}/{dialogue}.wav");
    ctx.artifacts.put(&recording, wav).await?;
    ctx.artifacts.put_json(&transcript_key(&recording), &transcript).await?;
    tracing::info!(dialogue, "played");
    Ok(Score { dialogue, metrics, recording: Some(recording) })
}

/// The transcript lies beside the recording.
pub(crate) fn transcript_key(recording: &str) -> String {
    format!("{}.json", recording.strip_suffix(".wav").unwrap_or(recording))
}

async fn summary(ctx: &JobContext, evaluation: &Evaluation, scores: &[Score]) -> Result<Value, JobError> {
    let model = models::get(&ctx.store, evaluation.model_id).await?;
    let loss = losses::of_model(&ctx.store, &model, evaluation.dataset_id).await?;
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in scores.iter().flat_map(|score| &score.metrics) {
        values.entry(name).or_default().push(*value);
    }
    let total = |name: &str| values.get(name).map_or(0.0, |v| v.iter().sum::<f64>());
    let metrics: BTreeMap<&str, Value> = values
        .iter()
        .map(|(name, v)| (*name, json!({ "n": v.len(), "mean": mean(v), "median": median(v) })))
        .collect();
    Ok(json!({
        "dialogues": scores.len(),
        "seconds": total("duration_s"),
        "injected_text_leak": total("injected_text_leak"),
        "injections_rejected": total("injections_rejected"),
        "metrics": metrics,
        "eval_loss": loss,
        "model": { "id": model.id, "name": model.name, "kind": model.kind, "base_id": model.base_id, "run_id": model.run_id },
    }))
}
