//! What a finished job leaves: applied in the transaction that ends the job, so that results and state agree.

use serde_json::{Value, json};

use domain::dataset::DatasetSummary;
use domain::dialogue::DialogueRecord;
use domain::{ComparisonId, DatasetId, EvaluationId, RunId};

use crate::dialogues::{AlignmentFacts, NewDialogue, RenderFacts, Split};
use crate::evaluations::Score;
use crate::models::NewModel;
use crate::voices::NewVoice;
use crate::{Result, Tx, comparisons, datasets, dialogues, evaluations, models, runs, voices};

/// Results of one job, by kind. Files are already in the artifact store; this names them.
#[derive(Debug, Clone)]
pub enum Completion {
    /// Dialogues written.
    Generated {
        /// Their dataset.
        dataset: DatasetId,
        /// One for each design row of the shard.
        dialogues: Vec<NewDialogue>,
    },
    /// Dialogues rendered.
    Rendered {
        /// Their dataset.
        dataset: DatasetId,
        /// Design row and facts.
        renders: Vec<(u32, RenderFacts)>,
        /// Voices used; registered when new.
        voices: Vec<NewVoice>,
    },
    /// Dialogues aligned.
    Aligned {
        /// Their dataset.
        dataset: DatasetId,
        /// Design row and facts.
        alignments: Vec<(u32, AlignmentFacts)>,
    },
    /// Dataset published.
    Assembled {
        /// The dataset.
        dataset: DatasetId,
        /// Its facts.
        summary: DatasetSummary,
        /// Side of each design row.
        splits: Vec<(u32, Split)>,
    },
    /// Dataset imported and published.
    Imported {
        /// The dataset.
        dataset: DatasetId,
        /// Its facts.
        summary: DatasetSummary,
        /// Records with their sides; the position is the row.
        dialogues: Vec<(DialogueRecord, Split)>,
        /// Voices of its prompts; registered when new.
        voices: Vec<NewVoice>,
    },
    /// Run trained and merged.
    Trained {
        /// The run.
        run: RunId,
        /// Loss first and last, steps, frames per second.
        summary: Value,
        /// The merged model.
        merged: NewModel,
    },
    /// Evaluation played.
    Evaluated {
        /// The evaluation.
        evaluation: EvaluationId,
        /// Aggregates by metric.
        summary: Value,
        /// One row per dialogue.
        scores: Vec<Score>,
    },
    /// Comparison written.
    Compared {
        /// The comparison.
        comparison: ComparisonId,
        /// Verdicts by metric.
        summary: Value,
        /// Artifact of the JSON report.
        report_json: String,
        /// Artifact of the HTML report.
        report_html: String,
    },
}

/// Writes the rows and returns the job's result document.
pub(crate) async fn apply(tx: &mut Tx, done: Completion) -> Result<Value> {
    Ok(match done {
        Completion::Generated { dataset, dialogues: records } => {
            dialogues::insert(tx, dataset, &records).await?;
            json!({ "dialogues": records.len() })
        }
        Completion::Rendered { dataset, renders, voices: used } => {
            dialogues::set_renders(tx, dataset, &renders).await?;
            for voice in &used {
                voices::ensure(tx, voice).await?;
            }
            json!({ "dialogues": renders.len() })
        }
        Completion::Aligned { dataset, alignments } => {
            dialogues::set_alignments(tx, dataset, &alignments).await?;
            json!({ "dialogues": alignments.len() })
        }
        Completion::Assembled { dataset, summary, splits } => {
            dialogues::set_splits(tx, dataset, &splits).await?;
            datasets::publish(tx, dataset, &summary).await?;
            json!({ "summary": summary })
        }
        Completion::Imported { dataset, summary, dialogues: imported, voices: used } => {
            let (records, sides): (Vec<_>, Vec<_>) = imported.into_iter().unzip();
            let records: Vec<NewDialogue> = (0..).zip(records).map(Into::into).collect();
            dialogues::insert(tx, dataset, &records).await?;
            dialogues::set_splits(tx, dataset, &(0..).zip(sides).collect::<Vec<_>>()).await?;
            for voice in &used {
                voices::ensure(tx, voice).await?;
            }
            datasets::set_dialogues(tx, dataset, records.len()).await?;
            datasets::publish(tx, dataset, &summary).await?;
            json!({ "summary": summary })
        }
        Completion::Trained { run, summary, merged } => {
            runs::set_summary(tx, run, &summary).await?;
            let model = merged.id;
            models::insert(tx, &merged).await?;
            json!({ "model_id": model, "summary": summary })
        }
        Completion::Evaluated { evaluation, summary, scores } => {
            evaluations::finish(tx, evaluation, &summary, &scores).await?;
            json!({ "summary": summary })
        }
        Completion::Compared { comparison, summary, report_json, report_html } => {
            comparisons::finish(tx, comparison, &summary, &report_json, &report_html).await?;
            json!({ "summary": summary })
        }
    })
}
