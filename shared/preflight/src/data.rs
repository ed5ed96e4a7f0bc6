//! Manifests, recordings and sidecars.

use std::collections::{BTreeSet, HashMap};

use audio::voice::voice_samples;
use domain::frame::{SAMPLE_RATE, frames_for_samples};
use domain::manifest::{ManifestEntry, Sidecar};
use domain::preflight::Severity::{Error, Warning};

use crate::Inputs;
use crate::files::{Folder, join, wav_header};
use crate::findings::Findings;
use crate::secrets::looks_like_key;
use crate::sidecar;

/// Seconds by which manifest and recording may differ.
const DURATION_S: f64 = 0.1;
/// Hours below which a run teaches little (finetune.md 9, 12 and 13).
const FEW_HOURS: f64 = 1.0;

/// A dialogue that could be read.
#[derive(Debug)]
pub struct Dialogue {
    /// Path of its sidecar.
    pub at: String,
    /// Held out.
    pub eval: bool,
    pub sidecar: Sidecar,
    /// Length of the recording.
    pub seconds: f64,
    pub frames: usize,
    /// Frames of the voice clip.
    pub voice_frames: usize,
}

struct Reader<'a> {
    folder: Folder<'a>,
    label: &'a str,
    prompted: bool,
    /// Frames of voice clips read so far; none where one is unusable.
    voices: HashMap<String, Option<usize>>,
}

/// Reads both manifests and everything that they name.
pub fn read(inputs: &Inputs<'_>, findings: &mut Findings) -> Vec<Dialogue> {
    let mut reader = Reader {
        folder: Folder::open(inputs.published, inputs.content_sha256, findings),
        label: &inputs.spec.data.main_speaker_label,
        prompted: inputs.spec.system_prompt.enable,
        voices: HashMap::new(),
    };
    let mut seen = BTreeSet::new();
    let mut dialogues = reader.side(false, &mut seen, findings);
    dialogues.extend(reader.side(true, &mut seen, findings));
    let hours = dialogues.iter().filter(|d| !d.eval).map(|d| d.seconds).sum::<f64>() / 3600.0;
    if !dialogues.iter().any(|d| !d.eval) {
        findings.say(Error, "no_data", "/dataset_id", "no dialogue to train on could be read");
    } else if hours < FEW_HOURS {
        let detail = format!(
            "{hours:.2} h of training audio: a voice or a role takes many hours (20 h were enough in English)"
        );
        findings.say(Warning, "data_small", "/dataset_id", detail);
    }
    if inputs.spec.do_eval && !dialogues.iter().any(|d| d.eval) {
        findings.say(
            Warning,
            "no_eval",
            "/spec/do_eval",
            "no dialogue is held out: evaluations have nothing to measure",
        );
    }
    dialogues
}

/// Words that speak of a dialogue that is to be written, and not to somebody who is in it (finetune.md 9, 20).
const META_INSTRUCTIONS: [&str; 9] = [
    "[call start]",
    "context_injection",
    "after_turn",
    "write a dialogue",
    "generate a dialogue",
    "the dialogue should",
    "the conversation should",
    "this scenario",
    "number of turns",
];

fn meta_instruction(brief: &str) -> Option<&'static str> {
    let brief = brief.to_lowercase();
    META_INSTRUCTIONS.into_iter().find(|phrase| brief.contains(phrase))
}

impl Reader<'_> {
    fn side(&mut self, eval: bool, seen: &mut BTreeSet<String>, findings: &mut Findings) -> Vec<Dialogue> {
        let manifest = if eval { "dataset/eval.jsonl" } else { "dataset/train.jsonl" };
        let Some(bytes) = self.folder.read(manifest, findings) else { return Vec::new() };
        let Ok(text) = String::from_utf8(bytes) else {
            findings.at(Error, "manifest_unreadable", manifest, "is not UTF-8");
            return Vec::new();
        };
        let mut dialogues = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let at = format!("{manifest}:{}", number + 1);
            let entry: ManifestEntry = match serde_json::from_str(line) {
                Ok(entry) => entry,
                Err(e) => {
                    findings.at(Error, "manifest_unreadable", &at, e.to_string());
                    continue;
                }
            };
            let Some(wav) = join("dataset", &entry.path).filter(|p| p.ends_with(".wav")) else {
                let detail = format!("{:?} is no path of a wav inside the dataset", entry.path);
                findings.at(Error, "path_outside", &at, detail);
                continue;
            };
            if !seen.insert(wav.clone()) {
                findings.at(
                    Error,
                    "listed_twice",
                    &at,
                    format!("{wav} is listed before: held-out data is not trained on"),
                );
                continue;
            }
            dialogues.extend(self.dialogue(&wav, entry.duration, eval, &at, findings));
        }
        dialogues
    }

    fn dialogue(
        &mut self,
        wav: &str,
        listed: f64,
        eval: bool,
        at: &str,
        findings: &mut Findings,
    ) -> Option<Dialogue> {
        let samples = self.recording(wav, findings)?;
        let seconds = samples as f64 / f64::from(SAMPLE_RATE);
        if (seconds - listed).abs() > DURATION_S {
            let detail = format!("lists {listed:.3} s, {wav} has {seconds:.3} s");
            findings.at(Error, "duration_differs", at, detail);
        }
        let path = format!("{}.json", wav.strip_suffix(".wav").unwrap_or(wav));
        let bytes = self.folder.read(&path, findings)?;
        let sidecar: Sidecar = match serde_json::from_slice(&bytes) {
            Ok(sidecar) => sidecar,
            Err(e) => {
                findings.at(Error, "sidecar_unreadable", &path, e.to_string());
                return None;
            }
        };
        let frames = frames_for_samples(samples);
        let usable = sidecar::check(&sidecar, self.label, seconds, frames, &path, findings);
        let texts = sidecar.context_injections.iter().map(|i| i.text.as_str());
        if texts.chain([sidecar.text_prompt.as_str()]).any(looks_like_key) {
            findings.at(Warning, "secret_in_data", &path, "a text looks like a key or password");
        }
        if let Some(phrase) = meta_instruction(&sidecar.text_prompt) {
            let detail =
                format!("says {phrase:?}: what is said to a generator of texts is no brief of an agent");
            findings.at(Warning, "prompt_meta", &path, detail);
        }
        let voice_frames = match &sidecar.voice_prompt {
            Some(voice) if self.prompted => self.voice(&path, voice, findings)?,
            _ => 0,
        };
        usable.then_some(Dialogue { at: path, eval, sidecar, seconds, frames, voice_frames })
    }

    /// Samples of a stereo recording.
    fn recording(&self, wav: &str, findings: &mut Findings) -> Option<usize> {
        match wav_header(&self.folder.local(wav)) {
            Err(e) => {
                findings.at(Error, "recording_unreadable", wav, e);
                None
            }
            Ok((2, SAMPLE_RATE, samples)) if samples > 0 => Some(samples),
            Ok((channels, rate, samples)) => {
                let detail = format!(
                    "{samples} samples of {channels} channel(s) at {rate} Hz: needs 2 (agent left, user right) at {SAMPLE_RATE}"
                );
                findings.at(Error, "recording_unusable", wav, detail);
                None
            }
        }
    }

    fn voice(&mut self, at: &str, relative: &str, findings: &mut Findings) -> Option<usize> {
        let folder = at.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Some(path) = join(folder, relative) else {
            findings.at(Error, "path_outside", at, format!("voice_prompt {relative:?} leaves the dataset"));
            return None;
        };
        if let Some(known) = self.voices.get(&path) {
            return *known;
        }
        let read = if path.to_ascii_lowercase().ends_with(".pt") {
            Err("holds one model's inputs and no audio, and training needs audio: publish the dataset with the voice's clip, or \
                 without voices"
                .to_owned())
        } else {
            std::fs::read(self.folder.local(&path)).map_err(|e| e.to_string())
        };
        let frames = match read.and_then(|bytes| voice_samples(&bytes).map_err(|e| e.to_string())) {
            Ok(samples) => Some(frames_for_samples(samples.len())),
            Err(e) => {
                findings.at(Error, "voice_unusable", &path, e);
                None
            }
        };
        self.voices.insert(path, frames);
        frames
    }
}
