//! The assemble job.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use chassis::{Completion, JobContext, JobError, JobHandler};
use domain::ErrorCode;
use domain::dataset::{DatasetSpec, DatasetSummary};
use domain::dialogue::DialogueRecord;
use domain::job::{JobKind, JobSpec};
use serde::Serialize;
use store::datasets::Dataset;
use store::dialogues::{Dialogue, Split, of_dataset};

use crate::DatasetSettings;
use crate::check::{Passed, Reason, check};
use crate::layout::{
    DatasetCard, Publisher, SCHEMA_VERSION, content_sha256, json_lines, manifest_entry, records_file,
};
use crate::split::{Candidate, held_out};

/// Puts datasets together.
#[derive(Debug, Clone)]
pub struct AssembleHandler {
    /// `[dataset]`
    pub settings: DatasetSettings,
}

/// A line of `rejects.jsonl`.
#[derive(Debug, Clone, Serialize)]
struct Reject {
    id: String,
    row: u32,
    reasons: Vec<Reason>,
}

/// A dialogue that is published.
#[derive(Debug)]
struct Kept {
    row: u32,
    record: DialogueRecord,
    passed: Passed,
    eval: bool,
}

fn invalid(detail: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::InvalidDataset, detail)
}

fn internal(error: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::Internal, error)
}

#[chassis::async_trait]
impl JobHandler for AssembleHandler {
    fn kind(&self) -> JobKind {
        JobKind::Assemble
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Assemble { dataset_id } = spec else {
            return Err(internal(format!("not an assemble job: {spec:?}")));
        };
        let dataset = store::datasets::get(&ctx.store, dataset_id).await?;
        let dialogues = of_dataset(&ctx.store, dataset_id, None).await?;
        if dialogues.len() != dataset.spec.dialogues as usize {
            let (found, asked) = (dialogues.len(), dataset.spec.dialogues);
            return Err(invalid(format!("the dataset has {found} dialogues, {asked} were asked for")));
        }
        let prefix = format!("{}/published", Dataset::prefix(dataset_id));
        let mut publisher = Publisher::new(ctx.artifacts.clone(), prefix);
        let (kept, rejects) = self.sort_out(ctx, &mut publisher, dialogues).await?;
        let kept = on_sides(kept, &rejects, &dataset.spec)?;
        ctx.check()?;
        write_lists(&mut publisher, &dataset.name, &kept, &rejects).await?;
        let summary = write_card(&mut publisher, &dataset, &kept, &rejects).await?;
        publisher.remove_others().await?;
        let splits = kept
            .iter()
            .map(|k| (k.row, if k.eval { Split::Eval } else { Split::Train }))
            .chain(rejects.iter().map(|r| (r.row, Split::Rejected)))
            .collect();
        Ok(Completion::Assembled { dataset: dataset_id, summary, splits })
    }
}

impl AssembleHandler {
    /// Checks every dialogue and writes the files of those that pass; both lists are sorted by id.
    async fn sort_out(
        &self,
        ctx: &JobContext,
        publisher: &mut Publisher,
        dialogues: Vec<Dialogue>,
    ) -> Result<(Vec<Kept>, Vec<Reject>), JobError> {
        let (total, mut kept, mut rejects) = (dialogues.len() as u64, Vec::new(), Vec::new());
        let mut voices = BTreeSet::new();
        for (done, dialogue) in (1..).zip(dialogues) {
            ctx.check()?;
            let (row, id) = (dialogue.row, dialogue.record.id.clone());
            let voice = dialogue.render.as_ref().map(|r| r.agent_voice.clone());
            match self.one(ctx, publisher, dialogue).await? {
                Ok(dialogue) => {
                    voices.extend(voice);
                    kept.push(dialogue);
                }
                Err(reasons) => {
                    tracing::info!(dialogue.row = row, reasons = reasons.len(), "row {row} is left out");
                    rejects.push(Reject { id, row, reasons });
                }
            }
            ctx.progress(done, total, "dialogues").await?;
        }
        for name in voices {
            let voice = store::voices::find(&ctx.store, &name).await?;
            let bytes = ctx.artifacts.get_verified(&voice.artifact, &voice.sha256).await?;
            publisher.put(&format!("speaker_samples/{name}.wav"), bytes).await?;
        }
        kept.sort_by(|a: &Kept, b: &Kept| a.record.id.cmp(&b.record.id));
        rejects.sort_by(|a: &Reject, b: &Reject| a.id.cmp(&b.id));
        Ok((kept, rejects))
    }

    async fn one(
        &self,
        ctx: &JobContext,
        publisher: &mut Publisher,
        dialogue: Dialogue,
    ) -> Result<Result<Kept, Vec<Reason>>, JobError> {
        let Dialogue { row, record, render: Some(render), alignment: Some(alignment), .. } = dialogue else {
            let detail = "the dialogue was not rendered or not aligned".to_owned();
            return Ok(Err(vec![Reason { code: "not_aligned", detail }]));
        };
        let mono = ctx.artifacts.get_verified(&render.wav, &render.wav_sha256).await?;
        let stereo = ctx.artifacts.get_verified(&alignment.wav, &alignment.wav_sha256).await?;
        let sidecar = ctx.artifacts.get_verified(&alignment.sidecar, &alignment.sidecar_sha256).await?;
        let (checked, wav, json): (DialogueRecord, Bytes, Bytes) =
            (record.clone(), stereo.clone(), sidecar.clone());
        let longest = self.settings.max_audio_seconds;
        let outcome =
            tokio::task::spawn_blocking(move || check(&checked, &alignment.faults, &wav, &json, longest))
                .await
                .map_err(|error| JobError::transient(ErrorCode::Internal, error))?;
        let passed = match outcome {
            Ok(passed) => passed,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let id = &record.id;
        publisher.put(&format!("mono_wav/{id}.wav"), mono).await?;
        publisher.put(&format!("stereo_wav/{id}.wav"), stereo).await?;
        publisher.put(&format!("stereo_wav/{id}.json"), sidecar).await?;
        publisher.put(&format!("scripts/{id}.txt"), passed.script.clone()).await?;
        Ok(Ok(Kept { row, record, passed, eval: false }))
    }
}

fn on_sides(mut kept: Vec<Kept>, rejects: &[Reject], spec: &DatasetSpec) -> Result<Vec<Kept>, JobError> {
    let candidates: Vec<Candidate> =
        kept.iter().map(|k| Candidate::new(&k.record.id, &k.record.text_prompt)).collect();
    let Some(eval) = held_out(&candidates, spec.seed, spec.eval_fraction) else {
        let needed = if spec.eval_fraction > 0.0 { 2 } else { 1 };
        let (passed, all) = (kept.len(), kept.len() + rejects.len());
        let mut why: BTreeMap<&str, usize> = BTreeMap::new();
        rejects.iter().flat_map(|r| &r.reasons).for_each(|r| *why.entry(&r.detail).or_default() += 1);
        let why: Vec<String> = why.into_iter().take(5).map(|(detail, n)| format!("{n} x {detail}")).collect();
        let detail = format!(
            "{passed} of {all} dialogues passed the checks, at least {needed} must: {}",
            why.join("; ")
        );
        return Err(invalid(detail));
    };
    kept.iter_mut().zip(eval).for_each(|(dialogue, eval)| dialogue.eval = eval);
    Ok(kept)
}

async fn write_lists(
    publisher: &mut Publisher,
    name: &str,
    kept: &[Kept],
    rejects: &[Reject],
) -> Result<(), JobError> {
    for (file, eval) in [("dataset/train.jsonl", false), ("dataset/eval.jsonl", true)] {
        let lines: Vec<_> = kept
            .iter()
            .filter(|k| k.eval == eval)
            .map(|k| manifest_entry(&k.record.id, k.passed.duration_ms))
            .collect();
        publisher.put(file, json_lines(&lines).map_err(internal)?).await?;
    }
    let records: Vec<&DialogueRecord> = kept.iter().map(|k| &k.record).collect();
    publisher.put(&records_file(name), json_lines(&records).map_err(internal)?).await?;
    publisher.put("rejects.jsonl", json_lines(rejects).map_err(internal)?).await?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a dataset are far below 2^53")]
async fn write_card(
    publisher: &mut Publisher,
    dataset: &Dataset,
    kept: &[Kept],
    rejects: &[Reject],
) -> Result<DatasetSummary, JobError> {
    let files = publisher.files();
    let count =
        |eval: bool| u32::try_from(kept.iter().filter(|k| k.eval == eval).count()).unwrap_or(u32::MAX);
    let models: BTreeSet<&str> = kept.iter().map(|k| k.record.model.as_str()).collect();
    let milliseconds: u64 = kept.iter().map(|k| k.passed.duration_ms).sum();
    let summary = DatasetSummary {
        train_dialogues: count(false),
        eval_dialogues: count(true),
        rejected_dialogues: u32::try_from(rejects.len()).unwrap_or(u32::MAX),
        audio_s: milliseconds as f64 / 1000.0,
        words: kept.iter().map(|k| k.passed.words).sum(),
        injections: kept.iter().map(|k| k.passed.injections).sum(),
        content_sha256: content_sha256(&files),
    };
    let card = DatasetCard {
        schema_version: SCHEMA_VERSION,
        name: dataset.name.clone(),
        domain: dataset.spec.domain.clone(),
        seed: dataset.spec.seed,
        eval_fraction: dataset.spec.eval_fraction,
        train_dialogues: summary.train_dialogues,
        eval_dialogues: summary.eval_dialogues,
        rejected_dialogues: summary.rejected_dialogues,
        audio_s: summary.audio_s,
        words: summary.words,
        injections: summary.injections,
        generator_models: models.into_iter().map(str::to_owned).collect(),
        cost_microusd: kept.iter().map(|k| k.record.cost_microusd).sum(),
        content_sha256: summary.content_sha256.clone(),
        files,
    };
    let mut bytes = serde_json::to_vec_pretty(&card).map_err(internal)?;
    bytes.push(b'\n');
    publisher.put("dataset.json", bytes).await?;
    Ok(summary)
}
