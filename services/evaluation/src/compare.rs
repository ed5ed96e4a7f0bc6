//! The `compare` job: both sides' scores into one report.

use serde_json::{Value, json};

use chassis::{Completion, JobContext, JobError, JobHandler};
use domain::evaluation::DialogueScore;
use domain::job::{JobKind, JobSpec};
use domain::{ComparisonId, ErrorCode};
use store::evaluations::{self, Evaluation, Score};
use store::{comparisons, models};

use crate::comparison::{PairedComparison, compare};
use crate::evaluate::transcript_key;
use crate::report::{self, Report, Side, Transcript};

/// Seed of the resampling; part of the report.
const SEED: u64 = 20_260_404;

/// Compares stored scores; no model, no session.
#[derive(Debug)]
pub struct CompareHandler;

#[chassis::async_trait]
impl JobHandler for CompareHandler {
    fn kind(&self) -> JobKind {
        JobKind::Compare
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Compare { comparison_id } = spec else {
            return Err(JobError::permanent(ErrorCode::Internal, format!("no compare job: {spec:?}")));
        };
        compare_stored(ctx, comparison_id).await
    }
}

async fn compare_stored(ctx: &JobContext, id: ComparisonId) -> Result<Completion, JobError> {
    let comparison = comparisons::get(&ctx.store, id).await?;
    let a = evaluations::get(&ctx.store, comparison.a_id).await?;
    let b = evaluations::get(&ctx.store, comparison.b_id).await?;
    let (left, right) =
        (evaluations::scores(&ctx.store, a.id).await?, evaluations::scores(&ctx.store, b.id).await?);
    let transcripts = transcripts(ctx, &left, &right).await;
    ctx.check()?;
    let sides = (side(ctx, &a).await?, side(ctx, &b).await?);
    let warnings = warnings(&a, &b);
    let (name, created_at) = (comparison.name.clone(), comparison.created_at.to_rfc3339());
    let worked = tokio::task::spawn_blocking(move || {
        let compared = compare(&plain(&left), &plain(&right), SEED);
        let report = Report::new(name, created_at, sides, compared, transcripts, warnings, SEED);
        report::html(&report).map(|html| (report, html))
    });
    let internal = |e: &dyn std::fmt::Display| JobError::permanent(ErrorCode::Internal, e);
    let (report, html) = worked.await.map_err(|e| internal(&e))?.map_err(|e| internal(&e))?;
    if report.compared.paired.is_empty() {
        return Err(JobError::permanent(
            ErrorCode::ValidationFailed,
            format!("{} and {} have no dialogue in common", a.id, b.id),
        ));
    }
    let folder = ctx.attempt_prefix(&format!("comparisons/{id}"));
    let (report_json, report_html) = (format!("{folder}/report.json"), format!("{folder}/report.html"));
    ctx.artifacts.put_json(&report_json, &report.document()).await?;
    ctx.artifacts.put(&report_html, html).await?;
    Ok(Completion::Compared { comparison: id, summary: summary(&report.compared), report_json, report_html })
}

fn plain(scores: &[Score]) -> Vec<DialogueScore> {
    scores
        .iter()
        .map(|s| DialogueScore { dialogue: s.dialogue.clone(), metrics: s.metrics.clone() })
        .collect()
}

async fn side(ctx: &JobContext, evaluation: &Evaluation) -> Result<Side, JobError> {
    let model = models::get(&ctx.store, evaluation.model_id).await?;
    let summary = evaluation.summary.clone().ok_or_else(|| {
        JobError::permanent(ErrorCode::Conflict, format!("{} has not succeeded", evaluation.id))
    })?;
    Ok(Side {
        evaluation_id: evaluation.id.to_string(),
        evaluation: evaluation.name.clone(),
        model_id: model.id.to_string(),
        model: model.name,
        base_id: model.base_id.map(|id| id.to_string()),
        run_id: model.run_id.map(|id| id.to_string()),
        dataset_id: evaluation.dataset_id.to_string(),
        spec: json!(evaluation.spec),
        eval_loss: summary["eval_loss"]["value"].as_f64(),
        dialogues: summary["dialogues"].as_u64().unwrap_or_default(),
        leaks: summary["injected_text_leak"].as_f64().unwrap_or_default(),
    })
}

/// What both sides said, where the transcripts are still there: they illustrate, they do not decide.
async fn transcripts(ctx: &JobContext, left: &[Score], right: &[Score]) -> Vec<Transcript> {
    let mut found = Vec::new();
    for a in left {
        let Some(b) = right.iter().find(|b| b.dialogue == a.dialogue) else { continue };
        let (a_text, b_text) = (said(ctx, a).await, said(ctx, b).await);
        found.push(Transcript { dialogue: a.dialogue.clone(), a: a_text, b: b_text });
    }
    found
}

async fn said(ctx: &JobContext, score: &Score) -> String {
    let Some(recording) = &score.recording else { return String::new() };
    match ctx.artifacts.get_json::<Value>(&transcript_key(recording)).await {
        Ok(document) => document["transcript"].as_str().unwrap_or_default().to_owned(),
        Err(error) => {
            tracing::warn!(%error, recording, "no transcript for the report");
            String::new()
        }
    }
}

fn warnings(a: &Evaluation, b: &Evaluation) -> Vec<String> {
    let mut warnings = Vec::new();
    if a.dataset_id != b.dataset_id {
        warnings
            .push("The two evaluations used different datasets; only equal dialogue ids are paired.".into());
    }
    if a.spec != b.spec {
        warnings.push("The two evaluations used different settings; see the JSON report.".into());
    }
    if a.model_id == b.model_id {
        warnings.push("Both evaluations are of the same model.".into());
    }
    warnings
}

fn summary(compared: &PairedComparison) -> Value {
    let metrics: serde_json::Map<String, Value> = compared
        .metrics
        .iter()
        .map(|m| {
            let facts = json!({
                "verdict": m.verdict, "note": m.note, "n": m.n, "mean_a": m.mean_a, "mean_b": m.mean_b,
                "mean_diff": m.mean_diff, "p_adjusted": m.p_adjusted, "cliffs_delta": m.cliffs_delta.delta,
            });
            (m.name.to_owned(), facts)
        })
        .collect();
    json!({ "pairs": compared.paired.len(), "dropped": compared.dropped, "metrics": metrics })
}
