//! What a source holds: manifests, records, the card, and which samples there are.

use std::collections::{BTreeMap, HashMap};

use artifacts::sha256_hex;
use domain::dataset::DatasetFile;
use domain::dialogue::DialogueRecord;
use serde::Deserialize;
use serde_json::Value;

use super::finding::{Fault, Findings};
use super::manifest::{self, Sample, Side};
use super::record::{self, Line};
use super::text::{lines, read_text};
use super::tree::{Tree, base_name, without_extension};

/// `dataset.json` of a source that we published before.
#[derive(Debug, Clone, Deserialize)]
pub struct SourceCard {
    /// Domain pack.
    pub domain: String,
    /// Seed of design and split.
    pub seed: u64,
    /// Share held out that was asked for.
    pub eval_fraction: f64,
    /// Every other file.
    pub files: Vec<DatasetFile>,
}

/// What is to be imported.
#[derive(Debug, Default)]
pub struct Plan {
    /// Samples in order of their wav.
    pub samples: Vec<Sample>,
    /// Record of each id that has one.
    pub records: HashMap<String, DialogueRecord>,
    /// Name of the only record file, without folder.
    pub records_file: Option<String>,
    /// `rejects.jsonl` as it is.
    pub rejects: Vec<u8>,
    /// `dataset.json`.
    pub card: Option<SourceCard>,
    /// Licence named in the front matter of `README.md`.
    pub license: Option<String>,
    /// Whether an eval manifest decides the sides.
    pub is_split: bool,
}

/// Looks through the source; faults of every file are noted.
pub fn plan(tree: &Tree, findings: &mut Findings) -> Plan {
    let mut plan = Plan::default();
    let (mut manifests, mut record_files) = (0, Vec::new());
    for file in tree.files().filter(|f| f.to_ascii_lowercase().ends_with(".jsonl")) {
        let bytes = match tree.read(file) {
            Ok(bytes) => bytes,
            Err(fault) => {
                findings.fault(fault);
                continue;
            }
        };
        if base_name(file) == "rejects.jsonl" {
            plan.rejects = bytes;
            continue;
        }
        let Some(text) = read_text(file, &bytes, findings) else { continue };
        if is_manifest(file, text) {
            manifests += 1;
            plan.is_split |= Side::of_manifest(file) == Side::Eval;
            plan.samples.extend(manifest::parse(tree, file, text, findings));
        } else if !text.trim().is_empty() {
            record_files.push(base_name(file).to_owned());
            read_records(file, text, &mut plan.records, findings);
        }
    }
    manifest::check_duplicates(&plan.samples, findings);
    if manifests == 0 {
        plan.samples = unlisted(tree);
        if plan.samples.is_empty() {
            let detail = "the source has no manifest (lines with `path`) and no wav with a sidecar beside it";
            findings.fault(Fault::new(".", "no_samples", detail));
        }
    }
    plan.samples.sort_by(|a, b| a.wav.cmp(&b.wav));
    if let [one] = record_files.as_slice() {
        plan.records_file = Some(one.clone());
    }
    plan.license = license(tree);
    read_card(tree, &mut plan, findings);
    plan
}

fn is_manifest(file: &str, text: &str) -> bool {
    let first = text.lines().find(|l| !l.trim().is_empty());
    let value: Option<Value> = first.and_then(|line| serde_json::from_str(line).ok());
    match value {
        Some(value) if value.get("path").is_some() => true,
        Some(value) if value.get("id").is_some() => false,
        _ => Side::of_manifest(file) != Side::Open,
    }
}

fn read_records(
    file: &str,
    text: &str,
    records: &mut HashMap<String, DialogueRecord>,
    findings: &mut Findings,
) {
    let mut lines_of: BTreeMap<String, u64> = BTreeMap::new();
    for (number, line) in lines(file, text, findings) {
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => {
                findings.fault(Fault::new(file, "json", format!("not JSON: {error}")).at(number));
                continue;
            }
        };
        match record::parse(&value, file, number, findings) {
            Some(Line::Record(record)) => {
                if let Some(first) = lines_of.insert(record.id.clone(), number) {
                    let detail = format!("record {:?} was on line {first} already", record.id);
                    findings.fault(Fault::new(file, "duplicate_record", detail).at(number));
                } else if records.insert(record.id.clone(), *record).is_some() {
                    let detail = "a record of this id is in another file too";
                    findings.fault(Fault::new(file, "duplicate_record", detail).at(number));
                }
            }
            Some(Line::Failed) => findings.warn("failed_record_skipped", format!("{file}:{number}")),
            None => {}
        }
    }
}

/// Wavs of a source without manifests: those in `stereo_wav`, else all that have a sidecar.
fn unlisted(tree: &Tree) -> Vec<Sample> {
    let wavs: Vec<&str> = tree
        .files()
        .filter(|f| f.to_ascii_lowercase().ends_with(".wav"))
        .filter(|f| !f.starts_with("mono_wav/") && !f.starts_with("speaker_samples/"))
        .collect();
    let stereo: Vec<&&str> = wavs.iter().filter(|f| f.starts_with("stereo_wav/")).collect();
    let chosen: Vec<&str> = if stereo.is_empty() {
        wavs.iter().copied().filter(|f| tree.contains(&format!("{}.json", without_extension(f)))).collect()
    } else {
        stereo.into_iter().copied().collect()
    };
    let sample = |wav: &str| Sample {
        wav: wav.into(),
        side: Side::Open,
        place: None,
        duration: None,
        text_prompt: None,
        voice_prompt: None,
    };
    chosen.into_iter().map(sample).collect()
}

/// Checks every file that `dataset.json` lists.
fn read_card(tree: &Tree, plan: &mut Plan, findings: &mut Findings) {
    const CARD: &str = "dataset.json";
    if !tree.contains(CARD) {
        return;
    }
    let Ok(bytes) = tree.read(CARD) else { return };
    let Ok(card) = serde_json::from_slice::<SourceCard>(&bytes) else {
        findings.warn("foreign_dataset_json", CARD);
        return;
    };
    for file in &card.files {
        let detail = match tree.contains(&file.path).then(|| tree.read(&file.path)) {
            None => "is listed in dataset.json and missing".to_owned(),
            Some(Err(fault)) => fault.detail,
            Some(Ok(bytes)) if sha256_hex(&bytes) == file.sha256 => continue,
            Some(Ok(bytes)) => format!(
                "is not the file of dataset.json: {} bytes with sha256 {}, listed are {} with {}",
                bytes.len(),
                sha256_hex(&bytes),
                file.bytes,
                file.sha256
            ),
        };
        findings.fault(Fault::new(&file.path, "content_hash", detail));
    }
    plan.card = Some(card);
}

fn license(tree: &Tree) -> Option<String> {
    let bytes = tree.contains("README.md").then(|| tree.read("README.md").ok())??;
    let text = String::from_utf8(bytes).ok()?;
    let front = text.strip_prefix("---")?.split_once("\n---")?.0;
    let line = front.lines().find_map(|l| l.strip_prefix("license:"))?;
    let plain = line.trim().trim_matches(['"', '\'']);
    (!plain.is_empty()).then(|| plain.chars().take(64).collect())
}
