//! Loaded models: read and checked off the engine thread, kept on it, least recently used first out.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use domain::ModelId;
use personaplex::{Lm, Mimi};
use streams::layout::Codes;
use tch::{Device, Kind};

use super::{ModelSource, VoiceClip};
use crate::InferenceError;

/// Voices whose codes are kept per model.
const VOICES_KEPT: usize = 32;

/// Weights of one model, and the codes of voices already encoded with its codec.
pub(super) struct LoadedModel {
    pub(super) id: ModelId,
    pub(super) lm: Lm,
    pub(super) mimi: Mimi,
    /// Most recently used last.
    voices: RefCell<Vec<(String, Arc<[Codes]>)>>,
}

impl LoadedModel {
    /// Reads a model folder. Every registered file must have its hash, the weights their names and shapes.
    pub(super) fn load(source: &ModelSource, device: Device, kind: Kind) -> Result<Self, InferenceError> {
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
        let ms = started.elapsed().as_millis() as u64;
        tracing::info!(model = %source.id, parameters = info.lm_parameters, ms, "model loaded");
        Ok(Self { id: source.id, lm, mimi, voices: RefCell::default() })
    }

    /// Codes of a voice clip, encoded from a fresh codec state.
    pub(super) fn voice(&self, clip: &VoiceClip) -> Result<Arc<[Codes]>, InferenceError> {
        let mut voices = self.voices.borrow_mut();
        let known = voices.iter().position(|(sha256, _)| *sha256 == clip.sha256);
        let entry = match known {
            Some(at) => voices.remove(at),
            None => {
                let codes = self.mimi.encode(&clip.pcm).map_err(|e| InferenceError::Engine(e.to_string()))?;
                (clip.sha256.clone(), codes.into())
            }
        };
        let codes = Arc::clone(&entry.1);
        voices.push(entry);
        if voices.len() > VOICES_KEPT {
            voices.remove(0);
        }
        Ok(codes)
    }
}

/// The models on the engine thread.
pub(super) struct Models {
    limit: usize,
    /// Most recently used last.
    loaded: Vec<Rc<LoadedModel>>,
}

impl Models {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, loaded: Vec::new() }
    }

    /// A loaded model, now the most recently used one.
    pub(super) fn get(&mut self, id: ModelId) -> Option<Rc<LoadedModel>> {
        let at = self.loaded.iter().position(|m| m.id == id)?;
        let model = self.loaded.remove(at);
        self.loaded.push(Rc::clone(&model));
        Some(model)
    }

    /// Keeps a model; the least recently used one that no conversation holds makes room.
    pub(super) fn keep(&mut self, model: LoadedModel) -> Result<Rc<LoadedModel>, InferenceError> {
        if self.loaded.len() >= self.limit {
            let unused = self.loaded.iter().position(|m| Rc::strong_count(m) == 1);
            let gone = self.loaded.remove(unused.ok_or(InferenceError::NoModelRoom { limit: self.limit })?);
            tracing::info!(model = %gone.id, "model unloaded");
        }
        let model = Rc::new(model);
        self.loaded.push(Rc::clone(&model));
        Ok(model)
    }
}
