//! A sound source in the published layout, made on disk, to be damaged by tests.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

use audio::Waveform;
use audio::wav::encode_pcm16;
use dataset::import::ImportOptions;
use dataset::import::dialogue::{Prepared, prepare};
use dataset::import::finding::Findings;
use dataset::import::plan::{Plan, plan};
use dataset::import::tree::Tree;
use serde_json::{Value, json};

/// Ids of the dialogues in [`Source::seed`]; the last one is held out.
pub const IDS: [&str; 3] = ["dial-00000", "dial-00001", "dial-00002"];

pub struct Source {
    pub dir: tempfile::TempDir,
}

/// Two seconds: the agent from 0 to 0.8 s, the user from 1 to 1.8 s.
pub fn sound(channels: usize, rate: u32) -> Waveform {
    let samples = 2 * rate as usize;
    let tone = |from: f32, hertz: f32| -> Vec<f32> {
        (0..samples)
            .map(|i| {
                let t = i as f32 / rate as f32;
                let on = (from..from + 0.8).contains(&t);
                if on { 0.3 * (t * hertz * std::f32::consts::TAU).sin() } else { 0.0 }
            })
            .collect()
    };
    let all = [tone(0.0, 200.0), tone(1.0, 400.0), tone(0.5, 300.0)];
    Waveform { rate, channels: all[..channels].to_vec() }
}

pub fn sidecar() -> Value {
    json!({
        "alignments": [
            ["Hello,", [0.0, 0.4], "SPEAKER_BROKER"], ["Ann.", [0.45, 0.8], "SPEAKER_BROKER"],
            ["Hi", [1.0, 1.3], "SPEAKER_CLIENT"], ["there.", [1.35, 1.8], "SPEAKER_CLIENT"]
        ],
        "turns": [
            {"index": 0, "speaker": "SPEAKER_BROKER", "start": 0.0, "end": 0.8, "text": "Hello, Ann."},
            {"index": 1, "speaker": "SPEAKER_CLIENT", "start": 1.0, "end": 1.8, "text": "Hi there."}
        ],
        "text_prompt": "ROLE: agent\nCLIENT: Ann",
        "voice_prompt": "../speaker_samples/v1.wav",
        "context_injections": [{"after_turn": 1, "text": "Quote it.", "frame_offset": 12}],
        "text_conditions": null
    })
}

pub fn record(id: &str) -> Value {
    json!({
        "id": id, "system_prompt": "ROLE: agent\nCLIENT: Ann", "assistant_name": "June", "seed": {"mood": "calm"},
        "model": "m", "dialogue": [{"speaker": "BROKER", "text": "Hello, Ann."}, {"speaker": "CLIENT", "text": "Hi there."}],
        "context_injections": [{"after_turn": 1, "text": "Quote it."}], "generated_at": "2026-01-01T00:00:00Z"
    })
}

impl Source {
    /// The published layout with absolute paths of another machine, as the public sample has them.
    pub fn seed() -> Self {
        let source = Self { dir: tempfile::tempdir().expect("a folder") };
        let mut records = String::new();
        for id in IDS {
            source.wav(&format!("stereo_wav/{id}.wav"), &sound(2, 24_000));
            source.wav(&format!("mono_wav/{id}.wav"), &sound(1, 24_000));
            source.json(&format!("stereo_wav/{id}.json"), &sidecar());
            source.write(&format!("scripts/{id}.txt"), "Speaker 1: Hello, Ann.\nSpeaker 2: Hi there.\n");
            records.push_str(&format!("{}\n", record(id)));
        }
        source.wav("speaker_samples/v1.wav", &sound(1, 24_000));
        source.write("pharma.jsonl", records);
        source.write("dataset/train.jsonl", manifest(&IDS[..2]));
        source.write("dataset/eval.jsonl", manifest(&IDS[2..]));
        source
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        std::fs::write(path, content).expect("writes");
    }

    pub fn wav(&self, path: &str, wave: &Waveform) {
        self.write(path, encode_pcm16(wave).expect("encodes"));
    }

    pub fn json(&self, path: &str, value: &Value) {
        self.write(path, value.to_string());
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).expect("reads")
    }

    pub fn remove(&self, path: &str) {
        std::fs::remove_file(self.path(path)).expect("removes");
    }

    /// Changes the sidecar of the first dialogue.
    pub fn edit_sidecar(&self, change: impl FnOnce(&mut Value)) {
        let mut value = sidecar();
        change(&mut value);
        self.json(&format!("stereo_wav/{}.json", IDS[0]), &value);
    }

    /// Changes the record of the first dialogue.
    pub fn edit_record(&self, change: impl FnOnce(&mut Value)) {
        let mut first = record(IDS[0]);
        change(&mut first);
        self.write("pharma.jsonl", format!("{first}\n{}\n{}\n", record(IDS[1]), record(IDS[2])));
    }

    pub fn check(&self, options: &ImportOptions) -> (Vec<Prepared>, Plan, Findings) {
        check_folder(self.dir.path(), options)
    }
}

pub fn manifest(ids: &[&str]) -> String {
    ids.iter()
        .map(|id| {
            let path = format!("/home/them/data/pharma/stereo_wav/{id}.wav");
            format!("{}\n", json!({"path": path, "duration": 2.0}))
        })
        .collect()
}

pub fn options() -> ImportOptions {
    ImportOptions {
        main_speaker_label: None,
        drop_voices: false,
        script_words: false,
        max_seconds: 60.0,
        tokenizer: None,
        max_injection_tokens: 50,
    }
}

/// What the import job does with a source, without a database.
pub fn check_folder(folder: &Path, options: &ImportOptions) -> (Vec<Prepared>, Plan, Findings) {
    let mut findings = Findings::default();
    let tree = match Tree::open(folder) {
        Ok(tree) => tree,
        Err(fault) => {
            findings.fault(fault);
            return (Vec::new(), Plan::default(), findings);
        }
    };
    let plan = plan(&tree, &mut findings);
    let prepared = plan
        .samples
        .iter()
        .filter_map(|sample| prepare(&tree, &plan, sample, options, &mut findings))
        .collect();
    (prepared, plan, findings)
}
