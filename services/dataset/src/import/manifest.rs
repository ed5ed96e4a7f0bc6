//! Manifests: which wav belongs to which side.

use serde_json::Value;

use super::finding::{Fault, Findings};
use super::text::lines;
use super::tree::{How, Tree, base_name};

/// Where a sample belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// For training.
    Train,
    /// Held out.
    Eval,
    /// The manifest does not say.
    Open,
}

impl Side {
    /// What the name of a manifest says.
    #[must_use]
    pub fn of_manifest(path: &str) -> Self {
        let name = base_name(path).to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
        if has(&["eval", "valid", "test", "dev"]) {
            Self::Eval
        } else if has(&["train"]) {
            Self::Train
        } else {
            Self::Open
        }
    }
}

/// A sample to import.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The wav, below the root.
    pub wav: String,
    /// Its side.
    pub side: Side,
    /// Manifest and line that name it.
    pub place: Option<(String, u64)>,
    /// Seconds, as the manifest says.
    pub duration: Option<f64>,
    /// Overrides the sidecar.
    pub text_prompt: Option<String>,
    /// Overrides the sidecar.
    pub voice_prompt: Option<String>,
}

impl Sample {
    /// A fault at the manifest's line, or of the wav.
    #[must_use]
    pub fn fault(&self, code: &str, detail: impl std::fmt::Display) -> Fault {
        match &self.place {
            Some((file, line)) => Fault::new(file, code, detail).at(*line),
            None => Fault::new(&self.wav, code, detail),
        }
    }
}

/// Reads a manifest whose text is known to be UTF-8; all faults are noted, all good lines returned.
pub fn parse(tree: &Tree, file: &str, text: &str, findings: &mut Findings) -> Vec<Sample> {
    let side = Side::of_manifest(file);
    let mut samples = Vec::new();
    for (number, line) in lines(file, text, findings) {
        let mut refuse =
            |code: &str, detail: String| findings.fault(Fault::new(file, code, detail).at(number));
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => {
                refuse("json", format!("not JSON: {error}"));
                continue;
            }
        };
        let Some(path) = value["path"].as_str() else {
            refuse("manifest_path", "the line has no `path`".into());
            continue;
        };
        let duration = value["duration"].as_f64();
        if duration.is_none() && !value["duration"].is_null() || duration.is_some_and(|d| d <= 0.0) {
            refuse("duration", format!("`duration` is {}, not seconds", value["duration"]));
        }
        match tree.resolve(file, path) {
            Ok(found) => {
                match found.how {
                    How::Relative => {}
                    How::FromRoot => findings.repaired("path_from_root", 1, format!("{file}:{number}")),
                    How::Rewritten => {
                        findings.repaired("absolute_path_rewritten", 1, format!("{file}:{number}"))
                    }
                }
                let text = |name: &str| value[name].as_str().map(str::to_owned);
                samples.push(Sample {
                    wav: found.path,
                    side,
                    place: Some((file.to_owned(), number)),
                    duration,
                    text_prompt: text("text_prompt"),
                    voice_prompt: text("voice_prompt"),
                });
            }
            Err((code, detail)) => refuse(code, detail),
        }
    }
    samples
}

/// Notes samples that are named twice, in one manifest or on both sides.
pub fn check_duplicates(samples: &[Sample], findings: &mut Findings) {
    let mut seen: std::collections::HashMap<&str, &Sample> = std::collections::HashMap::new();
    for sample in samples {
        let Some(first) = seen.insert(&sample.wav, sample) else { continue };
        let place = first.place.as_ref().map_or_else(String::new, |(file, line)| format!("{file}:{line}"));
        let (code, what) = if first.side == sample.side {
            ("duplicate", "is named again; it was named at")
        } else {
            ("on_both_sides", "is on the other side too, at")
        };
        findings.fault(sample.fault(code, format!("{:?} {what} {place}", sample.wav)));
        // The first one stays the first, so that a third is compared with it.
        seen.insert(&first.wav, first);
    }
}
