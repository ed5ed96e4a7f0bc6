//! The files of a published dataset: manifests and sidecars read, recordings only named.

use std::collections::HashMap;
use std::path::PathBuf;

use artifacts::Artifacts;
use domain::dataset::DatasetFile;
use domain::manifest::{ManifestEntry, Sidecar};
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// A recording that is read when it is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Where it lies.
    pub path: PathBuf,
    /// Its SHA-256 by the dataset's index; none when the index does not name it.
    pub sha256: Option<String>,
}

impl Recording {
    /// A file whose hash is not known yet.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, sha256: None }
    }
}

/// A dialogue's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RawDialogue {
    /// Record id.
    pub id: String,
    /// The stereo wav.
    pub wav: Recording,
    /// The sidecar.
    pub sidecar: Sidecar,
    /// The voice clip.
    pub voice: Option<Recording>,
    /// How it ends, by its record.
    pub outcome: Option<String>,
}

/// Both sides of a dataset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RawDataset {
    /// For training.
    pub train: Vec<RawDialogue>,
    /// Held out.
    pub eval: Vec<RawDialogue>,
}

/// The part of `dataset.json` that is used here.
#[derive(Debug, Default, Deserialize)]
struct Index {
    #[serde(default)]
    files: Vec<DatasetFile>,
}

/// Reads the manifests and the sidecars that they name.
///
/// # Errors
/// `Dataset` with file and line.
pub async fn read_dataset(artifacts: &Artifacts, published: &str) -> Result<RawDataset, TrainError> {
    let index: Index = match artifacts.get_json(&format!("{published}/dataset.json")).await {
        Ok(index) => index,
        Err(artifacts::ArtifactsError::NotFound(_)) => Index::default(),
        Err(error) => return Err(fault(published, error)),
    };
    let outcomes = outcomes(artifacts, published, &index).await?;
    let hashes = index.files.into_iter().map(|f| (format!("{published}/{}", f.path), f.sha256)).collect();
    let reader = Reader { artifacts, published, hashes, outcomes };
    Ok(RawDataset { train: reader.side("train").await?, eval: reader.side("eval").await? })
}

/// What of a dialogue record is used here.
#[derive(Debug, Deserialize)]
struct Record {
    id: String,
    #[serde(default)]
    seed: HashMap<String, serde_json::Value>,
}

/// Outcomes of the dialogues that have a record with one; records are the `.jsonl` files at the top of the dataset.
async fn outcomes(
    artifacts: &Artifacts,
    published: &str,
    index: &Index,
) -> Result<HashMap<String, String>, TrainError> {
    let is_records =
        |f: &&DatasetFile| f.path.ends_with(".jsonl") && !f.path.contains('/') && f.path != "rejects.jsonl";
    let mut outcomes = HashMap::new();
    for file in index.files.iter().filter(is_records) {
        let key = format!("{published}/{}", file.path);
        let bytes = artifacts.get(&key).await.map_err(|e| fault(&key, e))?;
        // Records in other forms are read at import; here they only lack an outcome.
        let text = String::from_utf8_lossy(&bytes);
        for Record { id, seed } in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            if let Some(outcome) = seed.get("outcome").and_then(|v| v.as_str()) {
                outcomes.insert(id, outcome.to_owned());
            }
        }
    }
    Ok(outcomes)
}

struct Reader<'a> {
    artifacts: &'a Artifacts,
    published: &'a str,
    /// By artifact key.
    hashes: HashMap<String, String>,
    /// By dialogue.
    outcomes: HashMap<String, String>,
}

impl Reader<'_> {
    async fn side(&self, side: &str) -> Result<Vec<RawDialogue>, TrainError> {
        let manifest = format!("{}/dataset/{side}.jsonl", self.published);
        let text = String::from_utf8(self.read(&manifest).await?).map_err(|e| fault(&manifest, e))?;
        let mut dialogues = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            dialogues.push(self.dialogue(line, &format!("{manifest}:{}", number + 1)).await?);
        }
        Ok(dialogues)
    }

    async fn dialogue(&self, line: &str, at: &str) -> Result<RawDialogue, TrainError> {
        let entry: ManifestEntry = serde_json::from_str(line).map_err(|e| fault(at, e))?;
        let wav_key = join(&format!("{}/dataset", self.published), &entry.path)
            .ok_or_else(|| fault(at, "the path leaves the dataset"))?;
        let stem = wav_key.strip_suffix(".wav").ok_or_else(|| fault(at, "the path does not end in .wav"))?;
        let sidecar_key = format!("{stem}.json");
        let sidecar: Sidecar =
            serde_json::from_slice(&self.read(&sidecar_key).await?).map_err(|e| fault(&sidecar_key, e))?;
        let folder = wav_key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let voice = match &sidecar.voice_prompt {
            None => None,
            Some(path) => {
                let key = join(folder, path)
                    .ok_or_else(|| fault(&sidecar_key, "voice_prompt leaves the dataset"))?;
                Some(self.recording(&key)?)
            }
        };
        let id = stem.rsplit_once('/').map_or(stem, |(_, name)| name).to_owned();
        let outcome = self.outcomes.get(&id).cloned();
        Ok(RawDialogue { id, wav: self.recording(&wav_key)?, sidecar, voice, outcome })
    }

    fn recording(&self, key: &str) -> Result<Recording, TrainError> {
        let path = self.artifacts.local_path(key).map_err(|e| fault(key, e))?;
        if !path.is_file() {
            return Err(fault(key, "the file is missing"));
        }
        Ok(Recording { path, sha256: self.hashes.get(key).cloned() })
    }

    async fn read(&self, key: &str) -> Result<Vec<u8>, TrainError> {
        self.artifacts.get(key).await.map(Into::into).map_err(|e| fault(key, e))
    }
}

pub(crate) fn fault(path: &str, detail: impl std::fmt::Display) -> TrainError {
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
