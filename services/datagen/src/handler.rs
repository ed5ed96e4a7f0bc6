//! Generate jobs: the dialogues of a shard of design rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use chassis::{Completion, JobContext, JobError, JobHandler, async_trait};
use domain::dataset::DatasetSpec;
use domain::dialogue::{DialogueRecord, RecordFault};
use domain::job::{JobKind, JobSpec, RowRange};
use domain::pack::DomainPack;
use domain::{DatasetId, ErrorCode};
use drafting::validate::batch::{COMMON_HASHES, Likeness, signature};
use store::datasets;
use store::dialogues::{self, NewDialogue};

use crate::error::DatagenError;
use crate::grammar::generate;
use crate::packs::Packs;
use crate::sampler::Design;
use crate::validate;
use crate::write::Writer;

/// Writes the dialogues of a shard; nothing is stored before all of them are written.
#[derive(Debug, Clone)]
pub struct GenerateHandler {
    packs: Arc<Packs>,
    writer: Option<Writer>,
}

impl GenerateHandler {
    /// Writes from these packs, and from those that people added.
    #[must_use]
    pub fn new(packs: Packs) -> Self {
        Self { packs: Arc::new(packs), writer: None }
    }

    /// Writes with a model instead of the phrases of the pack.
    #[must_use]
    pub fn with_writer(self, writer: Option<Writer>) -> Self {
        Self { writer, ..self }
    }

    async fn design(&self, ctx: &JobContext, spec: &DatasetSpec) -> Result<(DomainPack, Design), JobError> {
        let added = store::domains::find(&ctx.store, &spec.domain, spec.domain_version).await?;
        let pack = match added.filter(|_| spec.domain_version.is_some()) {
            Some(added) => added.pack,
            None => self.packs.get(&spec.domain, spec.domain_version).map_err(rejected)?.clone(),
        };
        let (blocks, seed) = (spec.design_blocks(), spec.seed);
        tokio::task::spawn_blocking(move || {
            let design = Design::of_blocks(&pack, &blocks, seed).map_err(|e| rejected(e.into()))?;
            Ok((pack, design))
        })
        .await
        .map_err(|error| JobError::permanent(ErrorCode::Internal, error))?
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
        let (pack, design) = self.design(ctx, &spec).await?;
        let mut taken = taken_over(ctx, &spec, rows).await?;
        if let Some(writer) = &self.writer {
            let written = writer.rows(ctx, (&pack, &design), dataset_id, rows, &taken).await?;
            taken.extend(written);
        }
        let mut shard = Shard { ctx, dataset_id, rows, accepted: Likeness::default(), written: Vec::new() };
        let total = u64::from(rows.to - rows.from);
        for (done, row) in (1..).zip(rows.rows()) {
            ctx.check()?;
            let (record, attempts) = match taken.remove(&row) {
                Some(taken) => taken,
                None => (generate(&pack, &design, row, spec.seed).map_err(|e| rejected(e.into()))?, 1),
            };
            let faults = validate::faults(&pack, &record);
            shard.add(row, record, faults, attempts).await?;
            if self.writer.is_none() || done == total {
                ctx.progress(done, total, "dialogues").await?;
            }
        }
        report(&pack, &shard.written);
        Ok(Completion::Generated { dataset: dataset_id, dialogues: shard.written })
    }
}

/// The records of the rows that the dataset takes over from the one it extends, with the attempts made at them; rows
/// that came to nothing there are written again.
async fn taken_over(
    ctx: &JobContext,
    spec: &DatasetSpec,
    rows: RowRange,
) -> Result<BTreeMap<u32, (DialogueRecord, u32)>, JobError> {
    let Some(base) = spec.extends else { return Ok(BTreeMap::new()) };
    let found = dialogues::of_dataset(&ctx.store, base, Some(rows)).await?;
    let good = found.into_iter().filter(|d| d.status.is_built(false));
    Ok(good.map(|d| (d.row, (d.record, d.attempts))).collect())
}

/// What a shard has written so far.
struct Shard<'a> {
    ctx: &'a JobContext,
    dataset_id: DatasetId,
    rows: RowRange,
    accepted: Likeness,
    written: Vec<NewDialogue>,
}

impl Shard<'_> {
    /// Takes a record with what it breaks by itself; a good one is compared with the others of the dataset.
    async fn add(
        &mut self,
        row: u32,
        record: DialogueRecord,
        mut faults: Vec<RecordFault>,
        attempts: u32,
    ) -> Result<(), JobError> {
        let signature = signature(&record);
        if faults.is_empty() {
            let others =
                dialogues::alike(&self.ctx.store, self.dataset_id, self.rows, &signature, COMMON_HASHES)
                    .await?;
            let mut stored = Likeness::default();
            others.iter().for_each(|other| stored.add(other));
            faults.extend(self.accepted.fault(&record).or_else(|| stored.fault(&record)));
        }
        if faults.is_empty() {
            self.accepted.add(&record);
        }
        self.written.push(NewDialogue { row, record, faults, attempts, signature });
        Ok(())
    }
}

fn rejected(error: DatagenError) -> JobError {
    let code = match error {
        DatagenError::UnknownDomain { .. } => ErrorCode::ValidationFailed,
        _ => ErrorCode::InvalidDialogue,
    };
    JobError::permanent(code, error)
}

fn report(pack: &DomainPack, written: &[NewDialogue]) {
    let good: Vec<DialogueRecord> =
        written.iter().filter(|d| d.faults.is_empty()).map(|d| d.record.clone()).collect();
    let attempts: u32 = written.iter().map(|d| d.attempts).sum();
    tracing::info!(dialogues = written.len(), good = good.len(), attempts, "dialogues written");
    for warning in validate::batch::warnings(pack, &good) {
        tracing::warn!(code = warning.code.as_str(), "the shard misses a target of its batch");
    }
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
