//! Datasets: what to build, and what was built.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::DatasetId;
use crate::run::FieldFault;

/// What to generate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetSpec {
    /// Domain pack id.
    pub domain: String,
    /// Number of dialogues: rows of the sampling design.
    pub dialogues: u32,
    /// Seed of the design and of every choice that follows from it.
    #[serde(default)]
    pub seed: u64,
    /// Dialogues per job; workers scale by it and a crash costs at most one.
    #[serde(default = "default_shard_size")]
    pub shard_size: u32,
    /// Share of the dialogues held out for evaluation, by hash of the record id.
    #[serde(default = "default_eval_fraction")]
    pub eval_fraction: f64,
    /// Version of the domain pack; none in datasets made before packs had versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_version: Option<u32>,
    /// Rows of each block of the design, when the dataset extends another; empty = one block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u32>,
    /// The dataset that this one extends: its dialogues are taken over, only the last block is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<DatasetId>,
    /// Whether dialogues wait for a person: only approved ones are rendered, once the dataset is released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved_only: bool,
}

impl Default for DatasetSpec {
    /// No dialogues of no domain.
    fn default() -> Self {
        Self {
            domain: String::new(),
            dialogues: 0,
            seed: 0,
            shard_size: default_shard_size(),
            eval_fraction: default_eval_fraction(),
            domain_version: None,
            blocks: Vec::new(),
            extends: None,
            approved_only: false,
        }
    }
}

const fn default_shard_size() -> u32 {
    4
}
const fn default_eval_fraction() -> f64 {
    0.05
}

impl DatasetSpec {
    /// Rows of each block of the design.
    #[must_use]
    pub fn design_blocks(&self) -> Vec<u32> {
        if self.blocks.is_empty() { vec![self.dialogues] } else { self.blocks.clone() }
    }

    /// Every field out of its range.
    #[must_use]
    pub fn faults(&self) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, pointer: &str, detail: String| {
            if !ok {
                faults.push(FieldFault { pointer: pointer.into(), detail });
            }
        };
        check(
            (2..=5_000).contains(&self.dialogues),
            "/dialogues",
            format!("must be 2 to 5000, not {}", self.dialogues),
        );
        check(
            (1..=500).contains(&self.shard_size),
            "/shard_size",
            format!("must be 1 to 500, not {}", self.shard_size),
        );
        check(
            (0.0..=0.5).contains(&self.eval_fraction),
            "/eval_fraction",
            format!("must be 0 to 0.5, not {}", self.eval_fraction),
        );
        faults
    }
}

/// A dataset by name: `calls` is any version of it, `calls@3` the third.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetName {
    /// Name; has no `@`.
    pub name: String,
    /// Version, from 1; none for all.
    pub version: Option<u32>,
}

/// A text that names no dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a dataset, alone or followed by `@` and a version from 1")]
pub struct BadDatasetName(String);

impl FromStr for DatasetName {
    type Err = BadDatasetName;
    fn from_str(text: &str) -> Result<Self, BadDatasetName> {
        let (name, version) = text.split_once('@').map_or((text, None), |(name, v)| (name, Some(v)));
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let number = version.map(|v| v.parse().ok().filter(|v| *v > 0 && i32::try_from(*v).is_ok()));
        if !(1..=100).contains(&name.len()) || !name.bytes().all(plain) || number == Some(None) {
            return Err(BadDatasetName(text.chars().take(120).collect()));
        }
        Ok(Self { name: name.into(), version: number.flatten() })
    }
}

/// What to import, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportSpec {
    /// Where the files are.
    pub source: ImportSource,
    /// Label of the agent's words in the sidecars; none finds it among the labels in use (`SPEAKER_BROKER`,
    /// `SPEAKER_MAIN`, `MODEL`, `SPEAKER_AGENT`, `AGENT`, `BROKER`).
    #[serde(default)]
    pub main_speaker_label: Option<String>,
    /// Share held out where the source names no eval manifest.
    pub eval_fraction: f64,
    /// Seed of that choice.
    #[serde(default)]
    pub seed: u64,
    /// Licence for the card; none takes the one of the source's `README.md`.
    #[serde(default)]
    pub license: Option<String>,
    /// Leaves voice prompts out, for sources whose voices are not audio (`.pt`).
    #[serde(default)]
    pub drop_voices: bool,
    /// Puts the script's words in the place of recognised ones, at their times.
    #[serde(default)]
    pub script_words: bool,
}

/// Where the files of an import are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportSource {
    /// A folder or archive below the server's import folder.
    Path(String),
    /// An archive that was uploaded before.
    Upload(crate::UploadId),
}

/// A file of a published dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DatasetFile {
    /// Path below the dataset's folder.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Hex SHA-256.
    pub sha256: String,
}

/// Facts of a published dataset; `dataset.json` holds the same with the files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DatasetSummary {
    /// Dialogues for training.
    pub train_dialogues: u32,
    /// Dialogues held out.
    pub eval_dialogues: u32,
    /// Dialogues left out, with their reasons in `rejects.jsonl`.
    pub rejected_dialogues: u32,
    /// Seconds of audio in all.
    pub audio_s: f64,
    /// Words with times.
    pub words: u64,
    /// Injections placed on the frame grid.
    pub injections: u64,
    /// Hex SHA-256 of the sorted file list: the dataset's content.
    pub content_sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_carry_a_version() {
        let parse = |text: &str| text.parse::<DatasetName>().map(|n| (n.name, n.version));
        assert_eq!(parse("calls"), Ok(("calls".into(), None)));
        assert_eq!(parse("calls@3"), Ok(("calls".into(), Some(3))));
        for bad in [
            "",
            "@1",
            "a b",
            "a\0",
            "calls@",
            "calls@0",
            "calls@x",
            "calls@-1",
            "calls@3@4",
            "calls@4294967295",
        ] {
            assert_eq!(parse(bad), Err(BadDatasetName(bad.into())));
        }
    }
}
