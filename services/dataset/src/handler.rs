//! The assemble job.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use chassis::{Completion, JobContext, JobError, JobHandler};
use domain::ErrorCode;
use domain::dataset::DatasetSpec;
use domain::dialogue::{DialogueRecord, DialogueStatus};
use domain::job::{JobKind, JobSpec};
use serde::Serialize;
use store::datasets::Dataset;
use store::dialogues::{Dialogue, Split, of_dataset};

use crate::DatasetSettings;
use crate::check::{Passed, Reason, check};
use crate::layout::{Publisher, json_lines, records_file};
use crate::publish::{self, CardMeta, Entry, internal, invalid};
use crate::report::Report;
use crate::report::facts::DialogueFacts;
use crate::split::{Candidate, held_out};
use crate::tokenizer::{NamedTokenizer, newest};

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

/// Why a dialogue was never rendered: the rules that it breaks, or what a person said.
fn refusal(dialogue: Dialogue) -> Reject {
    let said = dialogue.review.and_then(|review| review.reason).unwrap_or_default();
    let mut reasons: Vec<Reason> = dialogue
        .faults
        .into_iter()
        .map(|fault| Reason { code: fault.code.as_str(), detail: fault.detail })
        .collect();
    match dialogue.status {
        DialogueStatus::Rejected => reasons.push(Reason { code: "review_rejected", detail: said }),
        DialogueStatus::Valid => {
            reasons.push(Reason { code: "not_approved", detail: "nobody approved the dialogue".into() });
        }
        DialogueStatus::Invalid | DialogueStatus::Approved => {}
    }
    Reject { id: dialogue.record.id, row: dialogue.row, reasons }
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
        let tokenizer = newest(&ctx.store, &ctx.artifacts).await?;
        let (built, refused): (Vec<Dialogue>, Vec<Dialogue>) =
            dialogues.into_iter().partition(|d| d.status.is_built(dataset.spec.approved_only));
        let (kept, mut rejects) = self.sort_out(ctx, &mut publisher, built, tokenizer.as_ref()).await?;
        rejects.extend(refused.into_iter().map(refusal));
        rejects.sort_by(|a: &Reject, b: &Reject| a.id.cmp(&b.id));
        let kept = on_sides(kept, &rejects, &dataset.spec)?;
        ctx.check()?;
        let lines = json_lines(&rejects).map_err(internal)?;
        publish::write_lists(&mut publisher, &records_file(&dataset.name), &kept, lines).await?;
        let meta = CardMeta {
            name: &dataset.name,
            domain: &dataset.spec.domain,
            seed: dataset.spec.seed,
            eval_fraction: dataset.spec.eval_fraction,
            license: &self.settings.license,
        };
        let rejected = u32::try_from(rejects.len()).unwrap_or(u32::MAX);
        let summary = publish::write_card(&mut publisher, &meta, &kept, rejected).await?;
        publisher.remove_others().await?;
        let facts: Vec<DialogueFacts> = kept.iter().map(|k| k.facts.clone()).collect();
        let named = tokenizer.as_ref().map(|t| t.model.as_str());
        let report = Report::new(&dataset.name, &summary, &facts, named, None);
        publish::write_report(&ctx.artifacts, dataset_id, &report).await?;
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
        tokenizer: Option<&NamedTokenizer>,
    ) -> Result<(Vec<Entry>, Vec<Reject>), JobError> {
        let (total, mut kept, mut rejects) = (dialogues.len() as u64, Vec::new(), Vec::new());
        let mut voices = BTreeSet::new();
        for (done, dialogue) in (1..).zip(dialogues) {
            ctx.check()?;
            let (row, id) = (dialogue.row, dialogue.record.id.clone());
            let voice = dialogue.render.as_ref().map(|r| r.agent_voice.clone());
            match self.one(ctx, publisher, dialogue, tokenizer).await? {
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
        kept.sort_by(|a: &Entry, b: &Entry| a.record.id.cmp(&b.record.id));
        Ok((kept, rejects))
    }

    async fn one(
        &self,
        ctx: &JobContext,
        publisher: &mut Publisher,
        dialogue: Dialogue,
        tokenizer: Option<&NamedTokenizer>,
    ) -> Result<Result<Entry, Vec<Reason>>, JobError> {
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
        let tokenizer = tokenizer.map(|t| t.tokenizer.clone());
        let outcome = tokio::task::spawn_blocking(move || {
            let passed = check(&checked, &alignment.faults, &wav, &json, longest)?;
            let facts = publish::facts(&checked, &json, &wav, longest, tokenizer.as_deref());
            Ok::<(Passed, DialogueFacts), Vec<Reason>>((passed, facts))
        })
        .await
        .map_err(|error| JobError::transient(ErrorCode::Internal, error))?;
        let (passed, facts) = match outcome {
            Ok(passed) => passed,
            Err(reasons) => return Ok(Err(reasons)),
        };
        let id = &record.id;
        publisher.put(&format!("mono_wav/{id}.wav"), mono).await?;
        publisher.put(&format!("stereo_wav/{id}.wav"), stereo).await?;
        publisher.put(&format!("stereo_wav/{id}.json"), sidecar).await?;
        publisher.put(&format!("scripts/{id}.txt"), passed.script.clone()).await?;
        Ok(Ok(Entry { row, record, passed, facts, eval: false }))
    }
}

fn on_sides(mut kept: Vec<Entry>, rejects: &[Reject], spec: &DatasetSpec) -> Result<Vec<Entry>, JobError> {
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
