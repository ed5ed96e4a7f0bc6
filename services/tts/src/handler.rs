//! The render job: dialogues of a shard, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use artifacts::ArtifactsError;
use chassis::{Completion, JobContext, JobError, JobHandler};
use domain::ErrorCode;
use domain::job::{JobKind, JobSpec};
use store::datasets::Dataset;
use store::dialogues::{Dialogue, RenderFacts, of_dataset};
use store::voices::NewVoice;

use crate::engine::SpeechEngine;
use crate::error::TtsError;
use crate::render::{check, render};
use crate::voices::{Cast, reference_clip, registered_name};

/// Renders dialogues.
pub struct RenderHandler {
    /// Who speaks.
    pub engine: Arc<dyn SpeechEngine>,
    /// Longest script, in words.
    pub max_words: usize,
}

impl std::fmt::Debug for RenderHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RenderHandler").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

fn failed(error: TtsError) -> JobError {
    if error.is_transient() {
        JobError::transient(error.code(), error)
    } else {
        JobError::permanent(error.code(), error)
    }
}

/// Runs engine work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TtsError> + Send + 'static,
) -> Result<T, JobError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| JobError::transient(ErrorCode::SynthesisFailed, error))?
        .map_err(failed)
}

#[chassis::async_trait]
impl JobHandler for RenderHandler {
    fn kind(&self) -> JobKind {
        JobKind::Render
    }

    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let JobSpec::Render { dataset_id, rows } = spec else {
            return Err(JobError::permanent(ErrorCode::Internal, format!("not a render job: {spec:?}")));
        };
        let mut dialogues = of_dataset(&ctx.store, dataset_id, Some(rows)).await?;
        if dialogues.len() != rows.rows().len() {
            let (found, wanted) = (dialogues.len(), rows.rows().len());
            let detail = format!("rows {}..{} hold {found} dialogues, not {wanted}", rows.from, rows.to);
            return Err(JobError::permanent(ErrorCode::InvalidDataset, detail));
        }
        let approved_only = store::datasets::get(&ctx.store, dataset_id).await?.spec.approved_only;
        dialogues.retain(|d| d.status.is_built(approved_only));
        for dialogue in &dialogues {
            check(&dialogue.record, self.max_words).map_err(failed)?;
        }
        let folder = ctx.attempt_prefix(&format!("{}/build/render", Dataset::prefix(dataset_id)));
        let (total, mut renders, mut cast) = (dialogues.len() as u64, Vec::new(), BTreeSet::new());
        for (done, dialogue) in (1..).zip(&dialogues) {
            ctx.check()?;
            renders.push((dialogue.row, self.render(ctx, &folder, dialogue).await?));
            cast.insert(Cast::of(&dialogue.record.id, self.engine.as_ref()).agent);
            ctx.progress(done, total, "dialogues").await?;
        }
        let mut voices = Vec::new();
        for voice in cast {
            voices.push(self.voice(ctx, voice).await?);
        }
        Ok(Completion::Rendered { dataset: dataset_id, renders, voices })
    }
}

impl RenderHandler {
    async fn render(
        &self,
        ctx: &JobContext,
        folder: &str,
        dialogue: &Dialogue,
    ) -> Result<RenderFacts, JobError> {
        let (engine, record, max_words) = (Arc::clone(&self.engine), dialogue.record.clone(), self.max_words);
        let (wav, report) = blocking(move || {
            let rendering = render(&record, engine.as_ref(), max_words)?;
            Ok((audio::wav::encode_pcm16(&rendering.wave)?, rendering.report))
        })
        .await?;
        let base = format!("{folder}/{}", dialogue.record.id);
        let wav = ctx.artifacts.put(&format!("{base}.wav"), wav).await?;
        let stored = ctx.artifacts.put_json(&format!("{base}.json"), &report).await?;
        Ok(RenderFacts {
            wav: wav.path,
            wav_sha256: wav.sha256,
            report: stored.path,
            duration_ms: report.duration_ms,
            agent_voice: report.agent_voice,
        })
    }

    /// Reference clip of an agent's voice; one that is stored already stays, since datasets refer to its hash.
    async fn voice(&self, ctx: &JobContext, voice: &'static str) -> Result<NewVoice, JobError> {
        let name = registered_name(self.engine.as_ref(), voice);
        let artifact = format!("voices/{name}.wav");
        let bytes = match ctx.artifacts.get(&artifact).await {
            Ok(bytes) => bytes.to_vec(),
            Err(ArtifactsError::NotFound(_)) => {
                let engine = Arc::clone(&self.engine);
                let made =
                    blocking(move || Ok(audio::wav::encode_pcm16(&reference_clip(engine.as_ref(), voice)?)?))
                        .await?;
                ctx.artifacts.put(&artifact, made.clone()).await?;
                made
            }
            Err(error) => return Err(error.into()),
        };
        let wave = audio::wav::parse(&bytes, &audio::wav::WavLimits::default()).map_err(|error| {
            JobError::permanent(ErrorCode::ArtifactDamaged, format!("{artifact}: {error}"))
        })?;
        Ok(NewVoice {
            name,
            sha256: artifacts::sha256_hex(&bytes),
            duration_ms: wave.duration_ms(),
            artifact,
            source: self.engine.name().to_owned(),
        })
    }
}
