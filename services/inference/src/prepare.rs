//! From a session's row to what the engine needs. Everything that can be refused is refused here, before the upgrade.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use artifacts::Artifacts;
use audio::voice::voice_samples;
use domain::frame::frames_for_samples;
use domain::session::{SessionOptions, SessionState};
use domain::{ModelId, SessionId};
use personaplex::prompt::VoicePrompt;
use puppeteer::Puppeteer;
use store::Store;
use store::models::Model;
use streams::inject_queue::QueueLimits;
use streams::prompt::SILENCE_FRAMES;
use streams::tokenizer::{Tokenizer, check_system};
use streams::tokens::PromptCodes;
use weights::{LmConfig, ModelDir, VoiceFile};

use crate::InferenceError;
use crate::engine::{AdapterSource, ModelSource, OpenRequest, Pace, Source, StoredVoice};

/// Kind of a model that is an adapter of another.
const ADAPTER: &str = "adapter";
/// Models whose tokenizer is kept.
const FACTS_KEPT: usize = 16;

/// A session ready to be opened.
pub struct Prepared {
    /// Its row.
    pub id: SessionId,
    /// For the engine.
    pub request: OpenRequest,
    /// Of the session's model.
    pub tokenizer: Arc<Tokenizer>,
    /// Choices of the session.
    pub options: SessionOptions,
    /// Who stands beside it, once made.
    pub puppeteer: Option<Puppeteer>,
}

/// What is known of a model without loading it.
struct ModelFacts {
    /// The model, or the base of the adapter.
    source: ModelSource,
    adapter: Option<AdapterSource>,
    tokenizer: Arc<Tokenizer>,
    /// Rows that the model sees.
    window: usize,
    lm: LmConfig,
}

/// Reads rows and files; keeps what does not change.
pub struct Catalog {
    store: Store,
    artifacts: Artifacts,
    models: Mutex<HashMap<ModelId, Arc<ModelFacts>>>,
    /// Rows of a conversation, if they are fewer than a model's window.
    rows: Option<usize>,
}

impl Catalog {
    /// A catalog with nothing read.
    #[must_use]
    pub fn new(store: Store, artifacts: Artifacts) -> Self {
        Self { store, artifacts, models: Mutex::default(), rows: None }
    }

    /// Refuses prompts that do not fit into so many rows.
    #[must_use]
    pub fn with_rows(mut self, rows: Option<usize>) -> Self {
        self.rows = rows;
        self
    }

    /// Everything for one session.
    ///
    /// # Errors
    /// When the session is unknown or over, a file is missing or damaged, or the prompt is longer than the window.
    pub async fn prepare(&self, id: SessionId, limits: QueueLimits) -> Result<Prepared, InferenceError> {
        let session = store::sessions::get(&self.store, id).await?;
        if session.state == SessionState::Ended {
            return Err(InferenceError::SessionEnded(id));
        }
        let facts = self.model(session.model_id).await?;
        let voice = match &session.voice {
            Some(name) => Some(self.voice(name, &facts.lm).await?),
            None => None,
        };
        check_system(&session.text_prompt).map_err(InferenceError::Prompt)?;
        let prompt_tokens =
            facts.tokenizer.system_tokens(&session.text_prompt).map_err(InferenceError::Prompt)?;
        let window = self.rows.map_or(facts.window, |rows| rows.min(facts.window));
        check_length(voice.as_ref().map(|v| &*v.file), prompt_tokens.len(), window)?;
        let request = OpenRequest {
            model: facts.source.clone(),
            adapter: facts.adapter.clone(),
            voice,
            prompt_tokens,
            sampling: session.sampling,
            limits,
            pace: Pace::Audio,
            resume: None,
        };
        let tokenizer = Arc::clone(&facts.tokenizer);
        Ok(Prepared { id, request, tokenizer, options: session.options, puppeteer: None })
    }

    /// What to load for a model or an adapter.
    ///
    /// # Errors
    /// When it is unknown or its files cannot be read.
    pub async fn source(&self, id: ModelId) -> Result<Source, InferenceError> {
        let facts = self.model(id).await?;
        let base = facts.source.clone();
        Ok(match &facts.adapter {
            Some(adapter) => Source::Adapter(base, adapter.clone()),
            None => Source::Model(base),
        })
    }

    async fn model(&self, id: ModelId) -> Result<Arc<ModelFacts>, InferenceError> {
        if let Some(facts) = self.models.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(Arc::clone(facts));
        }
        let row = store::models::get(&self.store, id).await?;
        let (base, adapter) = match row.base_id {
            Some(base) if row.kind == ADAPTER => {
                let (dir, files) = self.files(&row)?;
                (store::models::get(&self.store, base).await?, Some(AdapterSource { id, dir, files }))
            }
            _ => (row, None),
        };
        let (base_id, (dir, files)) = (base.id, self.files(&base)?);
        let mut facts = tokio::task::spawn_blocking(move || read_facts(base_id, dir, files))
            .await
            .map_err(|e| InferenceError::Engine(e.to_string()))??;
        facts.adapter = adapter;
        let facts = Arc::new(facts);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() >= FACTS_KEPT {
            models.clear();
        }
        models.insert(id, Arc::clone(&facts));
        Ok(facts)
    }

    /// The folder of a model, and name and hash of its files.
    fn files(&self, row: &Model) -> Result<(PathBuf, Vec<(String, String)>), InferenceError> {
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let files = row.files.iter().map(|f| (name(&f.path), f.sha256.clone())).collect();
        Ok((self.artifacts.local_path(&row.prefix)?, files))
    }

    /// Uploads were converted when they were registered; a speech engine's own clip is converted here.
    async fn voice(&self, name: &str, lm: &LmConfig) -> Result<StoredVoice, InferenceError> {
        let voice = store::voices::find(&self.store, name).await?;
        let converted = voice.prompt_artifact.is_some();
        let artifact = voice.prompt_artifact.unwrap_or(voice.artifact);
        let sha256 = voice.prompt_sha256.unwrap_or(voice.sha256);
        let bytes = self.artifacts.get_verified(&artifact, &sha256).await?;
        let owned = name.to_owned();
        let read = move || match converted {
            true => VoiceFile::from_bytes(&bytes)
                .map_err(|source| InferenceError::VoiceFile { name: owned, source }),
            false => voice_samples(&bytes)
                .map(VoiceFile::Samples)
                .map_err(|source| InferenceError::Voice { name: owned, source }),
        };
        let file =
            tokio::task::spawn_blocking(read).await.map_err(|e| InferenceError::Engine(e.to_string()))??;
        VoicePrompt::check(&file, lm)
            .map_err(|source| InferenceError::VoiceMismatch { name: name.into(), source: source.into() })?;
        Ok(StoredVoice { sha256, file: Arc::new(file) })
    }
}

fn read_facts(id: ModelId, dir: PathBuf, files: Vec<(String, String)>) -> Result<ModelFacts, InferenceError> {
    let failed = |detail: String| InferenceError::Model { model: id.to_string(), detail };
    let paths = ModelDir::new(&dir);
    let config = paths.load_config().map_err(|e| failed(e.to_string()))?;
    let bytes = std::fs::read(paths.tokenizer_of(&config)).map_err(|e| failed(format!("tokenizer: {e}")))?;
    let tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| failed(e.to_string()))?;
    let window = usize::try_from(config.lm.context).map_err(|e| failed(format!("context: {e}")))?;
    let codes = PromptCodes { silence: config.silence_codes, sine: config.sine_codes };
    let source = ModelSource { id, dir, files, codes };
    let tokenizer = Arc::new(tokenizer);
    Ok(ModelFacts { source, adapter: None, tokenizer, window, lm: config.lm })
}

/// The prompt must leave at least one row of the window; it is never cut.
fn check_length(voice: Option<&VoiceFile>, text: usize, window: usize) -> Result<(), InferenceError> {
    let voice = voice.map_or(0, |file| match file {
        VoiceFile::Samples(samples) => frames_for_samples(samples.len()),
        VoiceFile::Codes { frames, .. } => frames.len(),
        VoiceFile::Embeddings(embeddings) => embeddings.calls() - 1,
    });
    let frames = voice + text + 2 * SILENCE_FRAMES;
    if frames >= window {
        return Err(InferenceError::PromptTooLong { frames, voice, text, window });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_fills_the_window_is_refused_and_one_just_under_it_is_not() {
        assert!(check_length(None, 2_987, 3_000).is_ok());
        let error = check_length(None, 2_988, 3_000).expect_err("too long");
        assert!(error.to_string().contains("3000"), "{error}");
        let clip = VoiceFile::Samples(vec![0.0; 1_921]);
        assert!(check_length(Some(&clip), 2_986, 3_000).is_err());
        assert!(check_length(Some(&clip), 2_985, 3_000).is_ok());
    }
}
