//! Paths inside the dataset, its index, and the headers of recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use domain::dataset::DatasetFile;
use domain::preflight::Severity::{Error, Warning};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::findings::Findings;

/// Derived from the other files, and so no part of the content.
const README: &str = "README.md";

/// The part of `dataset.json` that is used here.
#[derive(Debug, Default, Deserialize)]
struct Index {
    #[serde(default)]
    content_sha256: String,
    #[serde(default)]
    files: Vec<DatasetFile>,
}

/// The published folder with what its index says.
#[derive(Debug)]
pub struct Folder<'a> {
    root: &'a Path,
    index: HashMap<String, DatasetFile>,
}

/// Hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn content_sha256(files: &[DatasetFile]) -> String {
    let content = files.iter().filter(|f| f.path != README);
    let mut lines: Vec<String> = content.map(|f| format!("{}\0{}\n", f.path, f.sha256)).collect();
    lines.sort();
    sha256_hex(lines.concat().as_bytes())
}

impl<'a> Folder<'a> {
    /// Reads `dataset.json`, holds its content hash against `expected`, and every file's size against the disk.
    pub fn open(root: &'a Path, expected: Option<&str>, findings: &mut Findings) -> Self {
        const FILE: &str = "dataset.json";
        let index: Index = match std::fs::read(root.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                findings.at(Error, "index_unreadable", FILE, e.to_string());
                Index::default()
            }),
            Err(e) => {
                findings.at(Error, "index_unreadable", FILE, e.to_string());
                Index::default()
            }
        };
        let found = content_sha256(&index.files);
        for wanted in expected.into_iter().chain(Some(&*index.content_sha256)).filter(|h| !h.is_empty()) {
            if wanted != found {
                let detail = format!("its files have the content hash {found}, {wanted} was published");
                findings.at(Error, "content_changed", FILE, detail);
                break;
            }
        }
        for file in &index.files {
            match std::fs::metadata(root.join(&file.path)) {
                Err(_) => findings.at(Error, "file_missing", &file.path, "listed in dataset.json, not there"),
                Ok(meta) if meta.len() != file.bytes => {
                    let detail = format!("has {} bytes, dataset.json lists {}", meta.len(), file.bytes);
                    findings.at(Error, "file_damaged", &file.path, detail);
                }
                Ok(_) => {}
            }
        }
        let index = index.files.into_iter().map(|f| (f.path.clone(), f)).collect();
        Self { root, index }
    }

    /// A small file with the hash of the index.
    pub fn read(&self, path: &str, findings: &mut Findings) -> Option<Vec<u8>> {
        match std::fs::read(self.root.join(path)) {
            Err(e) => {
                // Listed files that are missing were told already.
                if !self.index.contains_key(path) {
                    findings.at(Error, "file_missing", path, e.to_string());
                }
                None
            }
            Ok(bytes) => {
                match self.index.get(path).map(|f| f.sha256.as_str()) {
                    Some(listed) if listed != sha256_hex(&bytes) => {
                        findings.at(Error, "file_damaged", path, "its sha256 is not the one of dataset.json");
                    }
                    None => findings.at(Warning, "file_not_listed", path, "not listed in dataset.json"),
                    Some(_) => {}
                }
                Some(bytes)
            }
        }
    }

    /// Path on this machine.
    pub fn local(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// Joins a relative path to a folder of the dataset; `None` when it would leave it.
pub fn join(folder: &str, relative: &str) -> Option<String> {
    if relative.starts_with('/') || relative.contains('\\') {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Channels, rate and samples per channel of a wav, from its header.
pub fn wav_header(path: &Path) -> Result<(u16, u32, usize), String> {
    let reader = hound::WavReader::open(path).map_err(|e| e.to_string())?;
    let spec = reader.spec();
    Ok((spec.channels, spec.sample_rate, reader.duration() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_the_dataset() {
        assert_eq!(join("dataset", "../stereo_wav/a.wav").as_deref(), Some("stereo_wav/a.wav"));
        assert_eq!(join("dataset", "./a.wav").as_deref(), Some("dataset/a.wav"));
        for bad in ["../../a.wav", "/etc/passwd", "..\\a.wav"] {
            assert_eq!(join("dataset", bad), None, "{bad}");
        }
    }
}
