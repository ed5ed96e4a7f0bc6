//! Names and content of the published files.

use artifacts::{Artifacts, ArtifactsError, sha256_hex};
use bytes::Bytes;
use domain::dataset::DatasetFile;
use domain::manifest::ManifestEntry;
use serde::Serialize;

/// Version of `dataset.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// `dataset.json`: what the folder holds. It lists every file but itself.
#[derive(Debug, Clone, Serialize)]
pub struct DatasetCard {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name of the dataset.
    pub name: String,
    /// Domain pack.
    pub domain: String,
    /// Seed of design and split.
    pub seed: u64,
    /// Share held out that was asked for.
    pub eval_fraction: f64,
    /// Dialogues for training.
    pub train_dialogues: u32,
    /// Dialogues held out.
    pub eval_dialogues: u32,
    /// Dialogues left out.
    pub rejected_dialogues: u32,
    /// Seconds of audio.
    pub audio_s: f64,
    /// Words with times.
    pub words: u64,
    /// Injections on the frame grid.
    pub injections: u64,
    /// Models that wrote the dialogues.
    pub generator_models: Vec<String>,
    /// What they cost, millionths of a dollar.
    pub cost_microusd: u64,
    /// [`content_sha256`] of `files`.
    pub content_sha256: String,
    /// All other files, by path.
    pub files: Vec<DatasetFile>,
}

/// The dataset card: derived from the other files and the dataset's name, and so no part of the content.
pub const README: &str = "README.md";

/// Hash of a list of files: SHA-256 over `path`, NUL, hash, newline of each but [`README`], sorted by path.
#[must_use]
pub fn content_sha256(files: &[DatasetFile]) -> String {
    let content = files.iter().filter(|f| f.path != README);
    let mut lines: Vec<String> = content.map(|f| format!("{}\0{}\n", f.path, f.sha256)).collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}

/// Name of the record file: the dataset's name with what files cannot be called replaced.
#[must_use]
pub fn records_file(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .take(64)
        .collect();
    match clean.trim_start_matches('.') {
        "" => "records.jsonl".into(),
        "rejects" => "rejects-records.jsonl".into(),
        clean => format!("{clean}.jsonl"),
    }
}

/// Lines of JSON.
///
/// # Errors
/// When a value cannot be written as JSON.
pub fn json_lines<T: Serialize>(values: &[T]) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    for value in values {
        serde_json::to_writer(&mut out, value)?;
        out.push(b'\n');
    }
    Ok(out)
}

/// Manifest line of a dialogue; the path is relative to `dataset/`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a call are far below 2^53")]
pub fn manifest_entry(id: &str, duration_ms: u64) -> ManifestEntry {
    ManifestEntry { path: format!("../stereo_wav/{id}.wav"), duration: duration_ms as f64 / 1000.0 }
}

/// Writes files below the published folder and remembers them.
#[derive(Debug)]
pub struct Publisher {
    artifacts: Artifacts,
    prefix: String,
    files: Vec<DatasetFile>,
}

impl Publisher {
    /// Starts with no files.
    #[must_use]
    pub const fn new(artifacts: Artifacts, prefix: String) -> Self {
        Self { artifacts, prefix, files: Vec::new() }
    }

    /// Writes one file.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn put(&mut self, path: &str, bytes: impl Into<Bytes>) -> Result<(), ArtifactsError> {
        let stored = self.artifacts.put(&format!("{}/{path}", self.prefix), bytes).await?;
        self.files.push(DatasetFile { path: path.into(), ..stored });
        Ok(())
    }

    /// Files written so far, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<DatasetFile> {
        let mut files = self.files.clone();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Hash and size of a file written before.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&DatasetFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Artifact key of a path.
    #[must_use]
    pub fn key(&self, path: &str) -> String {
        format!("{}/{path}", self.prefix)
    }

    /// Removes what an earlier attempt with other settings left, and is not part of the dataset.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn remove_others(&self) -> Result<(), ArtifactsError> {
        let ours: std::collections::BTreeSet<String> =
            self.files.iter().map(|f| format!("{}/{}", self.prefix, f.path)).collect();
        for key in self.artifacts.list(&self.prefix).await? {
            if ours.contains(&key) {
                continue;
            }
            let path = self.artifacts.local_path(&key)?;
            match tokio::fs::remove_file(&path).await {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ArtifactsError::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_hash_depends_on_paths_and_hashes_only() {
        let file =
            |path: &str, sha256: &str| DatasetFile { path: path.into(), bytes: 1, sha256: sha256.into() };
        let a = content_sha256(&[file("a", "1"), file("b", "2")]);
        assert_eq!(a, content_sha256(&[file("b", "2"), DatasetFile { bytes: 9, ..file("a", "1") }]));
        assert_ne!(a, content_sha256(&[file("a", "2"), file("b", "1")]));
        assert_eq!(content_sha256(&[]), sha256_hex(b""));
        assert_eq!(content_sha256(&[file(README, "1")]), content_sha256(&[]), "the card is derived");
    }

    #[test]
    fn record_files_have_plain_names() {
        assert_eq!(records_file("pharma-v2"), "pharma-v2.jsonl");
        assert_eq!(records_file("../a b/\u{e9}"), "-a-b--.jsonl");
        assert_eq!(records_file("rejects"), "rejects-records.jsonl");
        assert_eq!(records_file("..."), "records.jsonl");
    }
}
