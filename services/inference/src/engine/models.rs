//! Loaded models: read and checked off the engine thread, kept on it, least recently used first out.

use std::cell::RefCell;

use domain::ModelId;
use personaplex::prompt::{VoicePrompt, system_prompt};
use personaplex::{Lm, Mimi, Prompt};
use streams::tokens::PromptCodes;
use tch::{Device, Kind};

use super::group::Group;
use super::{ModelSource, OpenRequest, StoredVoice};
use crate::InferenceError;

/// Voices kept ready per model.
const VOICES_KEPT: usize = 32;

/// Weights of one model, and the voices already made ready for it.
pub(super) struct LoadedModel {
    pub(super) id: ModelId,
    pub(super) lm: Lm,
    pub(super) mimi: Mimi,
    pub(super) codes: PromptCodes,
    /// Hash of the codec's weights.
    codec_sha256: String,
    /// Most recently used last.
    voices: RefCell<Vec<(String, VoicePrompt)>>,
}

impl LoadedModel {
    /// Reads a model folder. Every registered file must have its hash, the weights their names and shapes.
    /// With `strict` the codec must give the configured codes for silence and the marker tone; without it that is a
    /// warning, since random weights never do.
    pub(super) fn load(
        source: &ModelSource,
        device: Device,
        kind: Kind,
        strict: bool,
    ) -> Result<Self, InferenceError> {
        let failed = |detail: String| InferenceError::Model { model: source.id.to_string(), detail };
        let started = std::time::Instant::now();
        let info = weights::verify(&source.dir).map_err(|e| failed(e.to_string()))?;
        for (name, sha256) in &source.files {
            let found = info.file(name).map_or("missing", |f| f.sha256.as_str());
            if found != sha256 {
                return Err(failed(format!("{name} has sha256 {found}, registered was {sha256}")));
            }
        }
        let lm = Lm::load(&source.dir, device, kind).map_err(|e| failed(e.to_string()))?;
        let mimi = Mimi::load(&source.dir, device).map_err(|e| failed(e.to_string()))?;
        check_constants(&mimi, &source.codes, strict).map_err(failed)?;
        let ms = started.elapsed().as_millis() as u64;
        tracing::info!(model = %source.id, parameters = info.lm_parameters, ms, "model loaded");
        let codec_sha256 = info.mimi.sha256;
        Ok(Self { id: source.id, lm, mimi, codes: source.codes, codec_sha256, voices: RefCell::default() })
    }

    /// What a conversation starts with. A voice is made ready once.
    pub(super) fn prompt(&self, request: &OpenRequest) -> Result<Prompt, InferenceError> {
        let mut voices = self.voices.borrow_mut();
        if let Some(voice) = &request.voice {
            let entry = match voices.iter().position(|(sha256, _)| *sha256 == voice.sha256) {
                Some(at) => voices.remove(at),
                None => (voice.sha256.clone(), self.make_ready(voice)?),
            };
            voices.push(entry);
            if voices.len() > VOICES_KEPT {
                voices.remove(0);
            }
        }
        let voice = request.voice.as_ref().and_then(|_| voices.last()).map(|(_, ready)| ready);
        Ok(system_prompt(voice, &request.prompt_tokens, &request.model.codes))
    }

    fn make_ready(&self, voice: &StoredVoice) -> Result<VoicePrompt, InferenceError> {
        VoicePrompt::new(&voice.file, self.lm.config(), &self.mimi, &self.codec_sha256)
            .map_err(|e| InferenceError::Engine(e.to_string()))
    }
}

/// Compares the configured codes of silence and of the marker tone with what the codec gives for them.
fn check_constants(mimi: &Mimi, codes: &PromptCodes, strict: bool) -> Result<(), String> {
    let report = mimi.check_constants(&codes.silence, &codes.sine).map_err(|e| e.to_string())?;
    report.warn();
    match report.differing().first() {
        Some((signal, check)) if strict => Err(format!(
            "its codec gives {:?} for {signal}, its configuration says {:?} (strict_constants)",
            check.found, check.configured
        )),
        _ => Ok(()),
    }
}

/// The models on the engine thread, each with its conversations.
pub(super) struct Models {
    limit: usize,
    /// Most recently used last.
    loaded: Vec<Group>,
}

impl Models {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, loaded: Vec::new() }
    }

    /// All of them.
    pub(super) fn groups(&mut self) -> impl Iterator<Item = &mut Group> {
        self.loaded.iter_mut()
    }

    /// A loaded model, now the most recently used one.
    pub(super) fn get(&mut self, id: ModelId) -> Option<&mut Group> {
        let at = self.loaded.iter().position(|group| group.model.id == id)?;
        let group = self.loaded.remove(at);
        self.loaded.push(group);
        self.loaded.last_mut()
    }

    /// Keeps a model; the least recently used one without conversations makes room.
    pub(super) fn keep(
        &mut self,
        model: LoadedModel,
        group: impl FnOnce(LoadedModel) -> Result<Group, InferenceError>,
    ) -> Result<&mut Group, InferenceError> {
        if self.loaded.len() >= self.limit {
            let unused = self.loaded.iter().position(Group::is_idle);
            let gone = self.loaded.remove(unused.ok_or(InferenceError::NoModelRoom { limit: self.limit })?);
            tracing::info!(model = %gone.model.id, "model unloaded");
        }
        self.loaded.push(group(model)?);
        self.loaded.last_mut().ok_or(InferenceError::NoConversation)
    }
}
