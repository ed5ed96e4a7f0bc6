//! Generate jobs: the dialogues of a shard of design rows.

use std::sync::Arc;

use chassis::{Completion, JobContext, JobError, JobHandler, async_trait};
use domain::dialogue::DialogueRecord;
use domain::injection::Placement;
use domain::job::{JobKind, JobSpec, RowRange};
use domain::pack::DomainPack;
use domain::{DatasetId, ErrorCode};
use store::datasets;

use crate::error::DatagenError;
use crate::grammar::generate;
use crate::packs::Packs;
use crate::sampler::Design;
use crate::validate;

/// Writes the dialogues of a shard; nothing is stored before all of them are good.
#[derive(Debug, Clone)]
pub struct GenerateHandler {
    packs: Arc<Packs>,
}

impl GenerateHandler {
    /// Writes from these packs.
    #[must_use]
    pub fn new(packs: Packs) -> Self {
        Self { packs: Arc::new(packs) }
    }

    async fn design(&self, domain: &str, rows: u32, seed: u64) -> Result<(DomainPack, Design), JobError> {
        let pack = self.packs.get(domain).map_err(rejected)?.clone();
        tokio::task::spawn_blocking(move || {
            let design = Design::new(&pack, rows, seed);
            (pack, design)
        })
        .await
        .map_err(|error| JobError::permanent(ErrorCode::Internal, error))
    }

    async fn shard(
        &self,
        ctx: &JobContext,
        dataset_id: DatasetId,
        rows: RowRange,
    ) -> Result<Completion, JobError> {
        let spec = datasets::get(&ctx.store, dataset_id).await?.spec;
        if rows.from >= rows.to || rows.to > spec.dialogues {
            let detail = format!("rows {} to {} of a design of {} rows", rows.from, rows.to, spec.dialogues);
            return Err(JobError::permanent(ErrorCode::ValidationFailed, detail));
        }
        let (pack, design) = self.design(&spec.domain, spec.dialogues, spec.seed).await?;
        let total = u64::from(rows.to - rows.from);
        let (mut dialogues, mut rejects) = (Vec::new(), Vec::new());
        for (done, row) in (1..).zip(rows.rows()) {
            ctx.check()?;
            match write(&pack, &design, row, spec.seed) {
                Ok(record) => dialogues.push((row, record)),
                Err(error) => rejects.push(error.to_string()),
            }
            ctx.progress(done, total, "dialogues").await?;
        }
        if !rejects.is_empty() {
            let detail = format!("{} of {total} dialogues: {}", rejects.len(), rejects.join(" | "));
            return Err(JobError::permanent(ErrorCode::InvalidDialogue, detail));
        }
        report(&dialogues);
        Ok(Completion::Generated { dataset: dataset_id, dialogues })
    }
}

fn rejected(error: DatagenError) -> JobError {
    let code = match error {
        DatagenError::UnknownDomain { .. } => ErrorCode::ValidationFailed,
        _ => ErrorCode::InvalidDialogue,
    };
    JobError::permanent(code, error)
}

fn write(pack: &DomainPack, design: &Design, row: u32, seed: u64) -> Result<DialogueRecord, DatagenError> {
    let record = generate(pack, design, row, seed)?;
    let faults = validate::faults(pack, &record);
    if faults.is_empty() { Ok(record) } else { Err(DatagenError::Rejected { id: record.id, faults }) }
}

fn report(dialogues: &[(u32, DialogueRecord)]) {
    let (mut turns, mut injections, mut proactive) = (0, 0, 0);
    for (_, record) in dialogues {
        turns += record.turns.len();
        injections += record.context_injections.len();
        let placements =
            record.context_injections.iter().map(|i| validate::placement_of(record, i.after_turn));
        proactive += placements.filter(|p| *p == Some(Placement::Proactive)).count();
    }
    tracing::info!(dialogues = dialogues.len(), turns, injections, proactive, "dialogues written");
}

#[async_trait]
impl JobHandler for GenerateHandler {
    fn kind(&self) -> JobKind {
        JobKind::Generate
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        match spec {
            JobSpec::Generate { dataset_id, rows } => self.shard(ctx, dataset_id, rows).await,
            other => {
                let detail = format!("a {} job cannot be generated", other.kind().as_str());
                Err(JobError::permanent(ErrorCode::Internal, detail))
            }
        }
    }
}
