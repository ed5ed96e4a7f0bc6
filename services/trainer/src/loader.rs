//! Dialogues as training samples: wav to codes (once, cached), words and codes to windows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use artifacts::sha256_hex;
use audio::{WavLimits, wav};
use domain::run::TrainingSpec;
use personaplex::Mimi;
use preflight::views::{view_config, window_config};
use streams::{
    Codes, DialogueInput, DialogueStats, PromptCodes, PromptInput, Tokenizer, Window, WindowConfig,
    build_dialogue,
};
use weights::ModelDir;

use crate::TrainError;
use crate::codes_cache::CodesCache;
use crate::dataset::fault;
pub use crate::dataset::{RawDataset, RawDialogue, Recording, read_dataset};

/// One window with its origin.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Record id of the dialogue.
    pub dialogue: String,
    /// How the dialogue ends by its record.
    pub outcome: Option<String>,
    /// The frames.
    pub window: Window,
}

impl Sample {
    /// Whether context was put into this window.
    #[must_use]
    pub fn has_context(&self) -> bool {
        self.window.context_mask.iter().any(|c| *c)
    }
}

/// Counts over the dialogues encoded so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Injections placed.
    pub injections: usize,
    /// Tokens of all contexts.
    pub context_tokens: usize,
    /// Frames contexts waited.
    pub deferred_frames: usize,
    /// Frames inserted for them.
    pub inserted_frames: usize,
    /// Frames before splicing.
    pub frames: usize,
    /// Recordings encoded, not found in the cache.
    pub encoded: usize,
}

/// Turns dialogues into windows with the codec and tokenizer of a model.
pub struct Encoder {
    mimi: Mimi,
    tokenizer: Tokenizer,
    codes: PromptCodes,
    voices: HashMap<PathBuf, Vec<Codes>>,
    cache: Option<CodesCache>,
    spec: TrainingSpec,
    window: WindowConfig,
    counts: Counts,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Encoder {
    /// Loads codec and tokenizer from a model folder. Codes are looked for and kept below `cache`.
    ///
    /// # Errors
    /// When the model's files cannot be read.
    pub fn load(
        model: &Path,
        device: tch::Device,
        spec: &TrainingSpec,
        cache: Option<&Path>,
    ) -> Result<Self, TrainError> {
        let dir = ModelDir::new(model);
        let config = dir.load_config()?;
        let path = dir.tokenizer_of(&config);
        let bytes = std::fs::read(&path).map_err(|source| TrainError::Io { path: path.clone(), source })?;
        let cache = match cache {
            Some(root) => Some(CodesCache::open(root, &weights::sha256_file(&dir.mimi())?)?),
            None => None,
        };
        Ok(Self {
            mimi: Mimi::load(model, device)?,
            tokenizer: Tokenizer::from_bytes(&bytes).map_err(|e| fault(&path.display().to_string(), e))?,
            codes: PromptCodes { silence: config.silence_codes, sine: config.sine_codes },
            voices: HashMap::new(),
            cache,
            window: window_config(spec),
            spec: spec.clone(),
            counts: Counts::default(),
        })
    }

    /// Compares the configured codes of silence and of the marker tone with what the codec gives for them; a difference
    /// is a warning, since random weights never match.
    ///
    /// # Errors
    /// `Constants` when `strict`.
    pub fn check_constants(&self, strict: bool) -> Result<(), TrainError> {
        let report = self.mimi.check_constants(&self.codes.silence, &self.codes.sine)?;
        report.warn();
        match report.differing().first() {
            Some((signal, check)) if strict => {
                let (found, configured) = (check.found, check.configured);
                Err(TrainError::Constants { signal, found, configured })
            }
            _ => Ok(()),
        }
    }

    /// What the dialogues so far held.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Starts counting anew.
    pub(crate) fn forget_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// Windows of one dialogue.
    ///
    /// # Errors
    /// `Dataset` that names the dialogue.
    pub fn windows(&mut self, dialogue: &RawDialogue) -> Result<Vec<Sample>, TrainError> {
        let at = |e: &dyn std::fmt::Display| fault(&dialogue.id, e);
        let label = &self.spec.data.main_speaker_label;
        let words = dialogue.sidecar.words(label);
        if !words.iter().any(|w| w.speaker == domain::dialogue::Speaker::Agent) {
            return Err(at(&format!("0 of {} words belong to the agent ({label})", words.len())));
        }
        let (agent_codes, user_codes) = self.stereo(dialogue)?;
        let injections = &dialogue.sidecar.context_injections[..];
        let input = DialogueInput {
            words: &words,
            injections: if self.spec.puppeteer.enable { injections } else { &[] },
            agent_codes: &agent_codes,
            user_codes: &user_codes,
        };
        let view = view_config(&self.spec, self.codes);
        let spliced = build_dialogue(&input, &self.tokenizer, &view).map_err(|e| at(&e))?;
        self.count(&spliced.stats);
        let prompted = self.spec.system_prompt.enable;
        let voice = match dialogue.voice.as_ref().filter(|_| prompted) {
            Some(clip) => self.voice(clip)?,
            None => Vec::new(),
        };
        let prompt = PromptInput {
            text: if prompted { &dialogue.sidecar.text_prompt } else { "" },
            voice: &voice,
            silence_frames: if prompted { self.spec.system_prompt.audio_silence_frames as usize } else { 0 },
        };
        let set = spliced.windows(&prompt, &self.tokenizer, &self.window, &self.codes).map_err(|e| at(&e))?;
        let limit = self.spec.system_prompt.max_frames as usize;
        if let Some(window) = set.windows.iter().find(|w| w.prompt_len > limit) {
            let found = window.prompt_len;
            return Err(at(&format!(
                "the prompt of window {} takes {found} frames, system_prompt.max_frames is {limit}",
                window.index
            )));
        }
        let sample =
            |window| Sample { dialogue: dialogue.id.clone(), outcome: dialogue.outcome.clone(), window };
        Ok(set.windows.into_iter().map(sample).collect())
    }

    fn count(&mut self, stats: &DialogueStats) {
        self.counts.injections += stats.injections;
        self.counts.context_tokens += stats.context_tokens;
        self.counts.deferred_frames += stats.deferred_frames;
        self.counts.inserted_frames += stats.inserted_frames;
        self.counts.frames += stats.frames;
    }

    /// Codes of agent and user.
    fn stereo(&mut self, dialogue: &RawDialogue) -> Result<(Vec<Codes>, Vec<Codes>), TrainError> {
        let cached = |cache: &CodesCache, hash: &str| cache.get(hash, 2).map(Vec::into_iter);
        if let (Some(cache), Some(hash)) = (&self.cache, &dialogue.wav.sha256)
            && let Some(mut sides) = cached(cache, hash)
        {
            return Ok((sides.next().unwrap_or_default(), sides.next().unwrap_or_default()));
        }
        let at = |e: &dyn std::fmt::Display| fault(&dialogue.id, e);
        let (bytes, hash) = read(&dialogue.wav)?;
        if let Some(mut sides) = self.cache.as_ref().and_then(|cache| cached(cache, &hash)) {
            return Ok((sides.next().unwrap_or_default(), sides.next().unwrap_or_default()));
        }
        let stereo = wav::parse(&bytes, &WavLimits::default()).map_err(|e| at(&e))?;
        drop(bytes);
        let [agent, user] = stereo.channels.as_slice() else {
            let found = stereo.channels.len();
            return Err(at(&format!("has {found} channel(s): needs 2, agent left, user right")));
        };
        let (found, wanted) = (stereo.rate, domain::frame::SAMPLE_RATE);
        if found != wanted {
            return Err(at(&format!("is at {found} Hz: published audio is at {wanted} Hz")));
        }
        let (agent, user) = (self.mimi.encode(agent)?, self.mimi.encode(user)?);
        self.counts.encoded += 1;
        if let Some(cache) = &self.cache {
            cache.put(&hash, &[&agent, &user])?;
        }
        Ok((agent, user))
    }

    fn voice(&mut self, clip: &Recording) -> Result<Vec<Codes>, TrainError> {
        if let Some(codes) = self.voices.get(&clip.path) {
            return Ok(codes.clone());
        }
        let (bytes, hash) = read(clip)?;
        let cached = self.cache.as_ref().and_then(|cache| cache.get(&hash, 1)).and_then(|mut c| c.pop());
        let codes = match cached {
            Some(codes) => codes,
            None => {
                let samples = audio::voice::voice_samples(&bytes)
                    .map_err(|e| fault(&clip.path.display().to_string(), e))?;
                let codes = self.mimi.encode(&samples)?;
                self.counts.encoded += 1;
                if let Some(cache) = &self.cache {
                    cache.put(&hash, &[&codes])?;
                }
                codes
            }
        };
        self.voices.insert(clip.path.clone(), codes.clone());
        Ok(codes)
    }
}

/// Content and SHA-256 of a recording, held against the hash of the index.
fn read(recording: &Recording) -> Result<(Vec<u8>, String), TrainError> {
    let path = recording.path.display().to_string();
    let bytes = std::fs::read(&recording.path).map_err(|e| fault(&path, e))?;
    let found = sha256_hex(&bytes);
    match &recording.sha256 {
        Some(listed) if *listed != found => {
            Err(fault(&path, format!("has sha256 {found}, dataset.json lists {listed}")))
        }
        _ => Ok((bytes, found)),
    }
}
