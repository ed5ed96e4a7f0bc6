//! A published dataset as training samples: manifest, sidecars, wavs, codes, windows.

use std::collections::HashMap;
use std::path::Path;

use artifacts::Artifacts;
use audio::{WavLimits, wav};
use domain::manifest::{ManifestEntry, Sidecar};
use personaplex::Mimi;
use streams::{
    Codes, DialogueInput, PromptCodes, PromptInput, Tokenizer, ViewConfig, Window, WindowConfig,
    build_dialogue,
};
use weights::ModelDir;

use crate::TrainError;

/// Label of the agent's words in the datasets that we publish.
const MAIN_LABEL: &str = "SPEAKER_BROKER";

/// One window with its origin.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Record id of the dialogue.
    pub dialogue: String,
    /// The frames.
    pub window: Window,
}

/// A dialogue's files, read but not yet encoded.
#[derive(Debug)]
pub struct RawDialogue {
    /// Record id.
    pub id: String,
    /// The stereo wav.
    pub wav: Vec<u8>,
    /// The sidecar.
    pub sidecar: Sidecar,
    /// Key of the voice clip in [`RawDataset::voices`].
    pub voice: Option<String>,
}

/// The files of both sides of a dataset.
#[derive(Debug, Default)]
pub struct RawDataset {
    /// For training.
    pub train: Vec<RawDialogue>,
    /// Held out.
    pub eval: Vec<RawDialogue>,
    /// Voice clips by artifact key.
    pub voices: HashMap<String, Vec<u8>>,
}

/// Reads the manifests and everything that they name.
///
/// # Errors
/// `Dataset` with file and line.
pub async fn read_dataset(artifacts: &Artifacts, published: &str) -> Result<RawDataset, TrainError> {
    let mut data = RawDataset::default();
    data.train = read_side(artifacts, published, "train", &mut data.voices).await?;
    data.eval = read_side(artifacts, published, "eval", &mut data.voices).await?;
    Ok(data)
}

async fn read_side(
    artifacts: &Artifacts,
    published: &str,
    side: &str,
    voices: &mut HashMap<String, Vec<u8>>,
) -> Result<Vec<RawDialogue>, TrainError> {
    let manifest = format!("{published}/dataset/{side}.jsonl");
    let text = read(artifacts, &manifest).await?;
    let text = String::from_utf8(text).map_err(|e| fault(&manifest, e))?;
    let mut dialogues = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let at_line = |e: &dyn std::fmt::Display| fault(&format!("{manifest}:{}", number + 1), e);
        let entry: ManifestEntry = serde_json::from_str(line).map_err(|e| at_line(&e))?;
        let wav_key = join(&format!("{published}/dataset"), &entry.path)
            .ok_or_else(|| at_line(&"the path leaves the dataset"))?;
        let stem = wav_key.strip_suffix(".wav").ok_or_else(|| at_line(&"the path does not end in .wav"))?;
        let sidecar_key = format!("{stem}.json");
        let sidecar: Sidecar = serde_json::from_slice(&read(artifacts, &sidecar_key).await?)
            .map_err(|e| fault(&sidecar_key, e))?;
        let folder = wav_key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let voice = match &sidecar.voice_prompt {
            None => None,
            Some(path) => {
                let key = join(folder, path)
                    .ok_or_else(|| fault(&sidecar_key, "voice_prompt leaves the dataset"))?;
                if !voices.contains_key(&key) {
                    voices.insert(key.clone(), read(artifacts, &key).await?);
                }
                Some(key)
            }
        };
        let id = stem.rsplit_once('/').map_or(stem, |(_, name)| name).to_owned();
        dialogues.push(RawDialogue { id, wav: read(artifacts, &wav_key).await?, sidecar, voice });
    }
    Ok(dialogues)
}

async fn read(artifacts: &Artifacts, key: &str) -> Result<Vec<u8>, TrainError> {
    artifacts.get(key).await.map(Into::into).map_err(|e| fault(key, e))
}

fn fault(path: &str, detail: impl std::fmt::Display) -> TrainError {
    TrainError::Dataset { path: path.into(), detail: detail.to_string() }
}

/// Joins a relative path to a folder; `None` when it would leave the top folder.
fn join(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').collect();
    let floor = parts.len().saturating_sub(1);
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.len() > floor => {
                parts.pop();
            }
            ".." => return None,
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Turns dialogues into windows with the codec and tokenizer of a model.
pub struct Encoder {
    mimi: Mimi,
    tokenizer: Tokenizer,
    codes: PromptCodes,
    voices: HashMap<String, Vec<Codes>>,
    window: WindowConfig,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Encoder {
    /// Loads codec and tokenizer from a model folder; windows last `duration_frames`, prompt included.
    ///
    /// # Errors
    /// When the model's files cannot be read.
    pub fn load(model: &Path, device: tch::Device, duration_frames: usize) -> Result<Self, TrainError> {
        let config = ModelDir::new(model).load_config()?;
        let path = ModelDir::new(model).tokenizer_of(&config);
        let bytes = std::fs::read(&path).map_err(|source| TrainError::Io { path: path.clone(), source })?;
        Ok(Self {
            mimi: Mimi::load(model, device)?,
            tokenizer: Tokenizer::from_bytes(&bytes).map_err(|e| fault(&path.display().to_string(), e))?,
            codes: PromptCodes { silence: config.silence_codes, sine: config.sine_codes },
            voices: HashMap::new(),
            window: WindowConfig::new(duration_frames),
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

    /// Windows of one dialogue.
    ///
    /// # Errors
    /// `Dataset` that names the dialogue.
    pub fn windows(
        &mut self,
        dialogue: &RawDialogue,
        voices: &HashMap<String, Vec<u8>>,
    ) -> Result<Vec<Sample>, TrainError> {
        let at = |e: &dyn std::fmt::Display| fault(&dialogue.id, e);
        let stereo = wav::parse(&dialogue.wav, &WavLimits::default()).map_err(|e| at(&e))?;
        let [agent, user] = stereo.channels.as_slice() else {
            return Err(at(&format!(
                "has {} channel(s): needs 2, agent left, user right",
                stereo.channels.len()
            )));
        };
        if stereo.rate != domain::frame::SAMPLE_RATE {
            return Err(at(&format!(
                "is at {} Hz: published audio is at {} Hz",
                stereo.rate,
                domain::frame::SAMPLE_RATE
            )));
        }
        let words = dialogue.sidecar.words(MAIN_LABEL);
        if !words.iter().any(|w| w.speaker == domain::dialogue::Speaker::Agent) {
            return Err(at(&format!("0 of {} words belong to the agent ({MAIN_LABEL})", words.len())));
        }
        let (agent_codes, user_codes) = (self.mimi.encode(agent)?, self.mimi.encode(user)?);
        let input = DialogueInput {
            words: &words,
            injections: &dialogue.sidecar.context_injections,
            agent_codes: &agent_codes,
            user_codes: &user_codes,
        };
        let view = ViewConfig { codes: self.codes, ..ViewConfig::default() };
        let spliced = build_dialogue(&input, &self.tokenizer, &view).map_err(|e| at(&e))?;
        let voice = match &dialogue.voice {
            Some(key) => self.voice(key, voices)?,
            None => Vec::new(),
        };
        let prompt = PromptInput::new(&dialogue.sidecar.text_prompt, &voice);
        let set = spliced.windows(&prompt, &self.tokenizer, &self.window, &self.codes).map_err(|e| at(&e))?;
        Ok(set.windows.into_iter().map(|window| Sample { dialogue: dialogue.id.clone(), window }).collect())
    }

    fn voice(&mut self, key: &str, voices: &HashMap<String, Vec<u8>>) -> Result<Vec<Codes>, TrainError> {
        if let Some(codes) = self.voices.get(key) {
            return Ok(codes.clone());
        }
        let bytes = voices.get(key).ok_or_else(|| fault(key, "voice clip was not read"))?;
        let samples = audio::voice::voice_samples(bytes).map_err(|e| fault(key, e))?;
        let codes = self.mimi.encode(&samples)?;
        self.voices.insert(key.to_owned(), codes.clone());
        Ok(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_stay_inside_the_published_folder() {
        let folder = "datasets/ds_1/published/dataset";
        assert_eq!(
            join(folder, "../stereo_wav/a.wav").as_deref(),
            Some("datasets/ds_1/published/stereo_wav/a.wav")
        );
        assert_eq!(join(folder, "./a.wav").as_deref(), Some("datasets/ds_1/published/dataset/a.wav"));
        assert_eq!(join(folder, "../../../secret.wav"), None);
    }
}
