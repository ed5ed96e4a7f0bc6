//! Loaded models: read and checked off the engine thread, kept on it, least recently used first out.

use std::cell::RefCell;

use domain::ModelId;
use personaplex::prompt::{VoicePrompt, system_prompt};
use personaplex::{Adapter, Lm, Mimi, Prompt};
use streams::tokens::PromptCodes;
use tch::{Device, Kind};

use super::group::Group;
use super::memory;
use super::{AdapterSource, ModelSource, ModelStatus, OpenRequest, StoredVoice};
use crate::InferenceError;
use weights::{LM_FILE, ModelDir};

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

/// What a loader brings.
pub(super) enum Loaded {
    /// A model and the bytes reckoned for it.
    Model(Box<LoadedModel>, u64),
    /// For the base of this id.
    Adapter(ModelId, LoadedAdapter),
}

/// An adapter off the engine thread, on the device.
pub(super) struct LoadedAdapter {
    pub(super) id: ModelId,
    pub(super) adapter: Adapter,
    /// Bytes of its tensors.
    pub(super) bytes: u64,
}

impl LoadedAdapter {
    /// Reads an adapter folder for its base. Every registered file must have its hash, and the adapter must be for this
    /// base if it names one.
    pub(super) fn load(
        base: &ModelSource,
        source: &AdapterSource,
        device: Device,
        kind: Kind,
    ) -> Result<Self, InferenceError> {
        let failed = |detail: String| InferenceError::Model { model: source.id.to_string(), detail };
        for (name, sha256) in &source.files {
            let bytes = std::fs::read(source.dir.join(name)).map_err(|e| failed(format!("{name}: {e}")))?;
            let found = artifacts::sha256_hex(&bytes);
            if found != *sha256 {
                return Err(failed(format!("{name} has sha256 {found}, registered was {sha256}")));
            }
        }
        let paths = ModelDir::new(&base.dir);
        let config = paths.load_config().map_err(|e| failed(e.to_string()))?;
        let adapter = Adapter::load(&source.dir, &config.lm).map_err(|e| failed(e.to_string()))?;
        let registered =
            base.files.iter().find(|(name, _)| name == LM_FILE).map(|(_, sha256)| sha256.clone());
        // Of a model in shards the identity is no file's hash.
        let base_sha256 = match registered {
            Some(sha256) => sha256,
            None => weights::checkpoint_sha256(&paths.lm()).map_err(|e| failed(e.to_string()))?,
        };
        adapter.check_base(&base_sha256).map_err(|e| failed(e.to_string()))?;
        let adapter = adapter.to(device, kind);
        let bytes = adapter.bytes() as u64;
        tracing::info!(model = %source.id, base = %base.id, rank = adapter.config().rank, "adapter loaded");
        Ok(Self { id: source.id, adapter, bytes })
    }
}

/// The models on the engine thread, each with its conversations.
pub(super) struct Models {
    limit: usize,
    device: Device,
    /// Bytes that all of them may take.
    memory: Option<u64>,
    /// Most recently used last.
    loaded: Vec<Group>,
}

impl Models {
    pub(super) fn new(limit: usize, device: Device, memory: Option<u64>) -> Self {
        Self { limit, device, memory, loaded: Vec::new() }
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

    /// Room for a model of `bytes`: the least recently used ones without conversations go as far as needed. `true` when
    /// the model is there already.
    pub(super) fn make_room(&mut self, id: ModelId, bytes: u64) -> Result<bool, InferenceError> {
        if self.get(id).is_some() {
            return Ok(true);
        }
        while self.loaded.len() >= self.limit {
            self.drop_idle().ok_or(InferenceError::NoModelRoom { limit: self.limit })?;
        }
        self.make_memory(id, bytes)?;
        Ok(false)
    }

    /// Room for an adapter beside its base, which is not dropped for it. `true` when the adapter is there already.
    pub(super) fn make_adapter_room(
        &mut self,
        base: ModelId,
        id: ModelId,
        bytes: u64,
    ) -> Result<bool, InferenceError> {
        let group = self.get(base).ok_or(InferenceError::NotLoaded { model: base.to_string() })?;
        if group.adapter(id).is_some() {
            return Ok(true);
        }
        self.make_memory(id, bytes)?;
        Ok(false)
    }

    fn make_memory(&mut self, id: ModelId, bytes: u64) -> Result<(), InferenceError> {
        loop {
            let taken = self.loaded.iter().map(Group::bytes).sum();
            match memory::free(self.device, self.memory, taken)? {
                Some(free) if free < bytes => {
                    self.drop_idle().ok_or_else(|| memory::too_large(id, bytes, free))?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Drops the least recently used model without conversations; the most recently used one stays, it is what room was
    /// asked beside.
    fn drop_idle(&mut self) -> Option<()> {
        let unused = self.loaded.iter().position(Group::is_idle)?;
        let gone = self.loaded.remove(unused);
        tracing::info!(model = %gone.model.id, "model unloaded");
        drop(gone);
        if self.device.is_cuda() {
            let _ = nn::graph::empty_cache(self.device);
        }
        Some(())
    }

    /// Keeps what was loaded.
    pub(super) fn keep(
        &mut self,
        loaded: Loaded,
        group: impl FnOnce(LoadedModel, u64) -> Result<Group, InferenceError>,
    ) -> Result<(), InferenceError> {
        match loaded {
            Loaded::Model(model, bytes) => self.loaded.push(group(*model, bytes)?),
            Loaded::Adapter(base, adapter) => {
                let missing = || InferenceError::NotLoaded { model: base.to_string() };
                self.get(base).ok_or_else(missing)?.keep(adapter)?;
            }
        }
        Ok(())
    }

    /// Unloads a model or an adapter that no conversation uses.
    pub(super) fn unload(&mut self, id: ModelId) -> Result<(), InferenceError> {
        let model = id.to_string();
        if let Some(at) = self.loaded.iter().position(|group| group.model.id == id) {
            let sessions = self.loaded[at].sessions(None);
            if sessions > 0 {
                return Err(InferenceError::ModelInUse { model, sessions });
            }
            drop(self.loaded.remove(at));
            if self.device.is_cuda() {
                let _ = nn::graph::empty_cache(self.device);
            }
            tracing::info!(model, "model unloaded");
            return Ok(());
        }
        let group = self.loaded.iter_mut().find(|group| group.adapter(id).is_some());
        group.ok_or(InferenceError::NotLoaded { model })?.unload(id)
    }

    /// Everything that is loaded.
    pub(super) fn status(&self) -> Vec<ModelStatus> {
        self.loaded.iter().flat_map(Group::status).collect()
    }
}
