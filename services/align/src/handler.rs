//! The align job: dialogues of a shard, one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use aligner::Aligner;
use audio::wav::{WavLimits, encode_pcm16, parse};
use chassis::{Completion, JobContext, JobError, JobHandler};
use domain::ErrorCode;
use domain::job::{JobKind, JobSpec};
use domain::render::RenderReport;
use store::datasets::Dataset;
use store::dialogues::{AlignmentFacts, Dialogue, of_dataset};

use crate::align::{Aligned, align, align_acoustically};
use crate::error::AlignError;
use crate::{AlignSettings, Backend};

/// Longest rendering that is read, seconds; the dataset's own limit is lower.
const MAX_SECONDS: f64 = 4.0 * 3600.0;

/// Aligns dialogues.
#[derive(Debug, Clone)]
pub struct AlignHandler {
    settings: AlignSettings,
    /// Read with the first job. A model that was missing is looked for again: it may have been installed since.
    model: Arc<Mutex<Option<Arc<Aligner>>>>,
}

impl AlignHandler {
    /// Aligns with these settings.
    #[must_use]
    pub fn new(settings: AlignSettings) -> Self {
        Self { settings, model: Arc::default() }
    }

    /// The acoustic model; blocks while it is read.
    fn model(&self) -> Result<Arc<Aligner>, AlignError> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        match &*model {
            Some(model) => Ok(model.clone()),
            None => Ok(model.insert(Arc::new(Aligner::open(&self.settings.model)?)).clone()),
        }
    }
}

fn failed(detail: impl std::fmt::Display) -> JobError {
    JobError::permanent(ErrorCode::AlignmentFailed, detail)
}

#[chassis::async_trait]
impl JobHandler for AlignHandler {
    fn kind(&self) -> JobKind {
        JobKind::Align
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Align { dataset_id, rows } = spec else {
            return Err(JobError::permanent(ErrorCode::Internal, format!("not an align job: {spec:?}")));
        };
        let mut dialogues = of_dataset(&ctx.store, dataset_id, Some(rows)).await?;
        if dialogues.len() != rows.rows().len() {
            let (found, wanted) = (dialogues.len(), rows.rows().len());
            let detail = format!("rows {}..{} hold {found} dialogues, not {wanted}", rows.from, rows.to);
            return Err(JobError::permanent(ErrorCode::InvalidDataset, detail));
        }
        let approved_only = store::datasets::get(&ctx.store, dataset_id).await?.spec.approved_only;
        dialogues.retain(|d| d.status.is_built(approved_only));
        let folder = ctx.attempt_prefix(&format!("{}/build/align", Dataset::prefix(dataset_id)));
        let (total, mut alignments) = (dialogues.len() as u64, Vec::new());
        for (done, dialogue) in (1..).zip(dialogues) {
            ctx.check()?;
            let row = dialogue.row;
            alignments.push((row, self.one(ctx, &folder, dialogue).await?));
            ctx.progress(done, total, "dialogues").await?;
        }
        Ok(Completion::Aligned { dataset: dataset_id, alignments })
    }
}

impl AlignHandler {
    async fn one(
        &self,
        ctx: &JobContext,
        folder: &str,
        dialogue: Dialogue,
    ) -> Result<AlignmentFacts, JobError> {
        let record = dialogue.record;
        let render = dialogue
            .render
            .ok_or_else(|| failed(format!("dialogue {:?} has not been rendered", record.id)))?;
        let wav = ctx.artifacts.get_verified(&render.wav, &render.wav_sha256).await?;
        let report: RenderReport = ctx.artifacts.get_json(&render.report).await?;
        let base = format!("{folder}/{}", record.id);
        let handler = self.clone();
        let work = move || -> Result<(Aligned, Vec<u8>), AlignError> {
            let mono = parse(&wav, &WavLimits { max_seconds: MAX_SECONDS, max_channels: 2 })?;
            let limits = handler.settings.limits();
            let aligned = match handler.settings.backend {
                Backend::Acoustic => {
                    align_acoustically(&*handler.model()?, &record, &report, &mono, &limits)?
                }
                Backend::Native => align(&record, &report, &mono, limits.max_estimated_share)?,
            };
            let stereo = encode_pcm16(&aligned.stereo)?;
            Ok((aligned, stereo))
        };
        let (aligned, stereo) = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| JobError::transient(ErrorCode::AlignmentFailed, error))?
            .map_err(failed)?;
        if aligned.repairs != crate::words::Repairs::default() || !aligned.faults.is_empty() {
            tracing::info!(dialogue.id = %dialogue.id, repairs = ?aligned.repairs, faults = ?aligned.faults,
                "the alignment of {} is not clean", dialogue.id);
        }
        let wav = ctx.artifacts.put(&format!("{base}.wav"), stereo).await?;
        let sidecar = ctx.artifacts.put_json(&format!("{base}.json"), &aligned.sidecar).await?;
        Ok(AlignmentFacts {
            wav: wav.path,
            wav_sha256: wav.sha256,
            sidecar: sidecar.path,
            sidecar_sha256: sidecar.sha256,
            duration_ms: aligned.stereo.duration_ms(),
            words: aligned.sidecar.alignments.len() as u64,
            estimated_words: aligned.sidecar.alignment_flags.interp.len() as u64,
            faults: aligned.faults,
        })
    }
}
