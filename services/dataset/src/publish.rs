//! What assembling and importing have in common: lists, card, report.

use std::collections::BTreeSet;

use artifacts::Artifacts;
use audio::wav::{WavLimits, parse};
use chassis::JobError;
use domain::dataset::DatasetSummary;
use domain::dialogue::DialogueRecord;
use domain::manifest::Sidecar;
use domain::{DatasetId, ErrorCode};
use store::datasets::Dataset;
use streams::Tokenizer;

use crate::check::Passed;
use crate::layout::{
    DatasetCard, Publisher, README, SCHEMA_VERSION, content_sha256, json_lines, manifest_entry,
};
use crate::readme::readme;
use crate::report::facts::DialogueFacts;
use crate::report::{Report, page};

/// A dialogue that is published.
#[derive(Debug)]
pub(crate) struct Entry {
    pub row: u32,
    pub record: DialogueRecord,
    pub passed: Passed,
    pub facts: DialogueFacts,
    pub eval: bool,
}

/// What the card says beside the counts.
pub(crate) struct CardMeta<'a> {
    pub name: &'a str,
    pub domain: &'a str,
    pub seed: u64,
    pub eval_fraction: f64,
    pub license: &'a str,
}

pub(crate) fn invalid(detail: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::InvalidDataset, detail)
}

pub(crate) fn internal(error: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::Internal, error)
}

/// Numbers of a dialogue that passed [`crate::check::check`].
pub(crate) fn facts(
    record: &DialogueRecord,
    sidecar: &[u8],
    wav: &[u8],
    max_seconds: f64,
    tokenizer: Option<&Tokenizer>,
) -> DialogueFacts {
    let sidecar: Sidecar = serde_json::from_slice(sidecar).expect("the check has read it");
    let wave = parse(wav, &WavLimits { max_seconds, max_channels: 2 }).expect("the check has read it");
    DialogueFacts::gather(record, &sidecar, &wave, tokenizer)
}

/// Manifests, records and rejects.
pub(crate) async fn write_lists(
    publisher: &mut Publisher,
    records_file: &str,
    entries: &[Entry],
    rejects: Vec<u8>,
) -> Result<(), JobError> {
    for (file, eval) in [("dataset/train.jsonl", false), ("dataset/eval.jsonl", true)] {
        let lines: Vec<_> = entries
            .iter()
            .filter(|e| e.eval == eval)
            .map(|e| manifest_entry(&e.record.id, e.passed.duration_ms))
            .collect();
        publisher.put(file, json_lines(&lines).map_err(internal)?).await?;
    }
    let records: Vec<&DialogueRecord> = entries.iter().map(|e| &e.record).collect();
    publisher.put(records_file, json_lines(&records).map_err(internal)?).await?;
    publisher.put("rejects.jsonl", rejects).await?;
    Ok(())
}

/// `README.md` and `dataset.json`.
pub(crate) async fn write_card(
    publisher: &mut Publisher,
    meta: &CardMeta<'_>,
    entries: &[Entry],
    rejected: u32,
) -> Result<DatasetSummary, JobError> {
    let count =
        |eval: bool| u32::try_from(entries.iter().filter(|e| e.eval == eval).count()).unwrap_or(u32::MAX);
    let models: BTreeSet<&str> = entries.iter().map(|e| e.record.model.as_str()).collect();
    let milliseconds: u64 = entries.iter().map(|e| e.passed.duration_ms).sum();
    let summary = DatasetSummary {
        train_dialogues: count(false),
        eval_dialogues: count(true),
        rejected_dialogues: rejected,
        audio_s: milliseconds as f64 / 1000.0,
        words: entries.iter().map(|e| e.passed.words).sum(),
        injections: entries.iter().map(|e| e.passed.injections).sum(),
        content_sha256: content_sha256(&publisher.files()),
    };
    let is_records =
        |path: &String| path.ends_with(".jsonl") && !path.contains('/') && path != "rejects.jsonl";
    let records = publisher.files().into_iter().map(|f| f.path).find(is_records).unwrap_or_default();
    publisher.put(README, readme(meta, &summary, &records)).await?;
    let card = DatasetCard {
        schema_version: SCHEMA_VERSION,
        name: meta.name.to_owned(),
        domain: meta.domain.to_owned(),
        seed: meta.seed,
        eval_fraction: meta.eval_fraction,
        train_dialogues: summary.train_dialogues,
        eval_dialogues: summary.eval_dialogues,
        rejected_dialogues: summary.rejected_dialogues,
        audio_s: summary.audio_s,
        words: summary.words,
        injections: summary.injections,
        generator_models: models.into_iter().map(str::to_owned).collect(),
        cost_microusd: entries.iter().map(|e| e.record.cost_microusd).sum(),
        content_sha256: summary.content_sha256.clone(),
        files: publisher.files(),
    };
    let mut bytes = serde_json::to_vec_pretty(&card).map_err(internal)?;
    bytes.push(b'\n');
    publisher.put("dataset.json", bytes).await?;
    Ok(summary)
}

/// Stores the report beside the published folder: it is about the content, not of it.
pub(crate) async fn write_report(
    artifacts: &Artifacts,
    dataset: DatasetId,
    report: &Report,
) -> Result<(), JobError> {
    let folder = format!("{}/report", Dataset::prefix(dataset));
    artifacts.put_json(&format!("{folder}/report.json"), report).await?;
    artifacts.put(&format!("{folder}/report.html"), page(report)).await?;
    Ok(())
}
