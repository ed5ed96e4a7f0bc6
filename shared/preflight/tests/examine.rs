//! A small dataset and a tiny base on disk: clean, then damaged in one way at a time.

use std::path::{Path, PathBuf};

use audio::Waveform;
use audio::wav::encode_pcm16;
use domain::dataset::DatasetFile;
use domain::preflight::{Preflight, Severity};
use domain::run::TrainingSpec;
use preflight::{Inputs, examine, memory};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Seconds of each recording.
const SECONDS: usize = 24;

struct House {
    dir: tempfile::TempDir,
    spec: TrainingSpec,
    name: String,
    expected: Option<String>,
    base_files: Vec<DatasetFile>,
}

fn sound(channels: usize, rate: u32, seconds: usize) -> Vec<u8> {
    let one: Vec<f32> = (0..seconds * rate as usize).map(|i| 0.2 * (i as f32 * 0.05).sin()).collect();
    encode_pcm16(&Waveform { rate, channels: vec![one; channels] }).expect("encodes")
}

fn sidecar() -> Value {
    let say = |i: usize| {
        let (label, at) = (["SPEAKER_BROKER", "SPEAKER_CLIENT"][i % 2], i as f64 * 2.0);
        [json!(["yes", [at, at + 0.4], label]), json!(["thanks", [at + 0.5, at + 1.0], label])]
    };
    let turn = |i: usize| {
        let speaker = ["SPEAKER_BROKER", "SPEAKER_CLIENT"][i % 2];
        json!({"index": i, "speaker": speaker, "start": i as f64 * 2.0, "end": i as f64 * 2.0 + 1.0, "text": "yes thanks"})
    };
    json!({
        "alignments": (0..10).flat_map(say).collect::<Vec<_>>(),
        "turns": (0..10).map(turn).collect::<Vec<_>>(),
        "text_prompt": "You work here.", "voice_prompt": "../speaker_samples/v.wav",
        "context_injections": [{"after_turn": 3, "text": "It is ready.", "frame_offset": 90}],
        "text_conditions": null
    })
}

fn listed(root: &Path, path: &str) -> DatasetFile {
    let bytes = std::fs::read(root.join(path)).expect("reads");
    let sha256 = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    DatasetFile { path: path.into(), bytes: bytes.len() as u64, sha256 }
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().join("base");
        weights::init_model(&base, "tiny", 1).expect("makes the model");
        let base_files = ["model.safetensors", "config.json", "tokenizer.model", "mimi.safetensors"];
        let base_files = base_files.iter().map(|f| listed(&base, f)).collect();
        let mut spec = TrainingSpec {
            duration_sec: 20.0,
            max_steps: 30,
            batch_size: 1,
            num_microbatches: 1,
            ..TrainingSpec::default()
        };
        (spec.lora.rank, spec.optim.pct_start) = (8, 0.2);
        let house = Self { dir, spec, name: "r".into(), expected: None, base_files };
        for id in ["a", "b", "c"] {
            house.put(&format!("stereo_wav/{id}.wav"), sound(2, 24_000, SECONDS));
            house.put(&format!("stereo_wav/{id}.json"), sidecar().to_string());
        }
        house.put("speaker_samples/v.wav", sound(1, 24_000, 3));
        let line = |id: &str| {
            format!("{}\n", json!({"path": format!("../stereo_wav/{id}.wav"), "duration": SECONDS}))
        };
        house.put("dataset/train.jsonl", line("a") + &line("b"));
        house.put("dataset/eval.jsonl", line("c"));
        house.index();
        house
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("published").join(path)
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.path(path).parent().expect("has one")).expect("makes");
        std::fs::write(self.path(path), bytes).expect("writes");
    }

    /// Writes `dataset.json` for what is there, as a publisher would have.
    fn index(&self) {
        let mut files = Vec::new();
        for folder in ["stereo_wav", "speaker_samples", "dataset"] {
            for entry in std::fs::read_dir(self.path(folder)).expect("lists") {
                let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
                files.push(listed(&self.path(""), &format!("{folder}/{name}")));
            }
        }
        self.put("dataset.json", json!({ "files": files }).to_string());
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut value = sidecar();
        change(&mut value);
        self.put("stereo_wav/a.json", value.to_string());
        self.index();
    }

    fn manifest(&self, line: &str) {
        let text = std::fs::read_to_string(self.path("dataset/train.jsonl")).expect("reads");
        self.put("dataset/train.jsonl", text + line + "\n");
        self.index();
    }

    fn examine(&self) -> Preflight {
        examine(&Inputs {
            name: &self.name,
            spec: &self.spec,
            earlier: None,
            published: &self.path(""),
            content_sha256: self.expected.as_deref(),
            base: &self.dir.path().join("base"),
            base_files: &self.base_files,
            storage: self.dir.path(),
            devices: &memory::DEVICES,
        })
    }
}

fn codes(report: &Preflight, severity: Severity) -> Vec<&str> {
    report.findings.iter().filter(|f| f.severity == severity).map(|f| f.code.as_str()).collect()
}

#[test]
fn a_clean_dataset_passes_with_its_numbers() {
    let house = House::new();
    let report = house.examine();
    assert!(report.passed, "{:#?}", report.findings);
    assert_eq!(codes(&report, Severity::Warning), ["data_small"], "{:#?}", report.findings);
    let data = report.data.expect("numbers");
    assert_eq!((data.train_dialogues, data.eval_dialogues, data.injections), (2, 1, 3));
    assert!((data.injection_yield - 1.0).abs() < 1e-12 && data.context_tokens > 0, "{data:?}");
    assert!((data.train_hours - 2.0 * SECONDS as f64 / 3600.0).abs() < 1e-9);
    assert!(data.train_windows >= 2 && data.longest_prompt_frames >= 37 + 12, "voice and silences: {data:?}");
    assert_eq!((data.window_frames, data.agent_words), (250, 30));
    assert_eq!((report.schedule.windows_per_step, report.schedule.steps), (1, 30));
    let memory = report.memory.expect("numbers");
    assert!(memory.trainable_parameters > 0 && memory.devices.iter().all(|d| d.fits), "{memory:?}");
    let disk = report.disk.expect("numbers");
    assert!(disk.free_bytes.is_some_and(|free| free > disk.needed_bytes), "{disk:?}");
}

#[test]
fn each_of_the_mutated_datasets_is_refused_for_its_own_reason() {
    type Damage = fn(&mut House);
    let cases: &[(&str, Damage)] = &[
        ("label_missing", |h| h.spec.data.main_speaker_label = "SPEAKER_MAIN".into()),
        ("words_unsorted", |h| h.edit(|s| s["alignments"][2][1] = json!([0.1, 0.2]))),
        ("word_units", |h| h.edit(|s| s["alignments"][19][1] = json!([18_500.0, 19_000.0]))),
        ("word_past_end", |h| h.edit(|s| s["alignments"][19][1] = json!([25.0, 26.0]))),
        ("word_times", |h| h.edit(|s| s["alignments"][3][1] = json!([2.0, 1.0]))),
        ("injection_unplaced", |h| h.edit(|s| s["context_injections"][0]["frame_offset"] = Value::Null)),
        ("injection_past_end", |h| h.edit(|s| s["context_injections"][0]["frame_offset"] = json!(5_000))),
        ("injection_past_end", |h| h.edit(|s| s["context_injections"][0]["frame_offset"] = json!(300))),
        ("injection_turn", |h| h.edit(|s| s["context_injections"][0]["after_turn"] = json!(99))),
        ("injection_too_long", |h| {
            h.edit(|s| s["context_injections"][0]["text"] = json!("ready ".repeat(200)))
        }),
        ("context_text", |h| h.edit(|s| s["context_injections"][0]["text"] = json!("a <context> b"))),
        ("prompt_too_long", |h| h.edit(|s| s["text_prompt"] = json!("You work here. ".repeat(200)))),
        ("prompt_above_limit", |h| h.spec.system_prompt.max_frames = 20),
        ("sidecar_unreadable", |h| {
            h.put("stereo_wav/a.json", "{");
            h.index();
        }),
        ("file_missing", |h| std::fs::remove_file(h.path("stereo_wav/a.json")).expect("removes")),
        ("file_damaged", |h| h.put("stereo_wav/a.json", sidecar().to_string().replace("yes", "no"))),
        ("content_changed", |h| h.expected = Some("00".repeat(32))),
        ("index_unreadable", |h| std::fs::remove_file(h.path("dataset.json")).expect("removes")),
        ("recording_unusable", |h| h.put("stereo_wav/a.wav", sound(1, 24_000, SECONDS))),
        ("recording_unusable", |h| h.put("stereo_wav/a.wav", sound(2, 16_000, SECONDS))),
        ("recording_unreadable", |h| h.put("stereo_wav/a.wav", "RIFF")),
        ("duration_differs", |h| h.put("stereo_wav/a.wav", sound(2, 24_000, SECONDS + 1))),
        ("path_outside", |h| h.manifest(r#"{"path": "../../x.wav", "duration": 1}"#)),
        ("listed_twice", |h| h.manifest(r#"{"path": "../stereo_wav/c.wav", "duration": 24}"#)),
        ("manifest_unreadable", |h| h.manifest("{")),
        ("voice_unusable", |h| h.put("speaker_samples/v.wav", "PK")),
        ("voice_unusable", |h| {
            h.put("speaker_samples/v.pt", "PK");
            h.edit(|s| s["voice_prompt"] = json!("../speaker_samples/v.pt"));
        }),
        ("path_outside", |h| h.edit(|s| s["voice_prompt"] = json!("../../../v.wav"))),
        ("no_data", |h| h.put("dataset/train.jsonl", "")),
        ("spec_invalid", |h| h.spec.batch_size = 0),
        ("secret_in_request", |h| h.name = "hf_abcdEFGH1234567890zz".into()),
        ("base_damaged", |h| h.base_files[1].sha256 = "00".repeat(32)),
        ("base_damaged", |h| h.base_files[0].bytes += 1),
        ("base_unreadable", |h| {
            std::fs::remove_file(h.dir.path().join("base/config.json")).expect("removes")
        }),
        ("disk_full", |h| h.base_files[0].bytes = 1 << 60),
    ];
    for (code, damage) in cases {
        let mut house = House::new();
        damage(&mut house);
        let report = house.examine();
        let found = codes(&report, Severity::Error);
        assert!(!report.passed && found.contains(code), "{code}: {:#?}", report.findings);
    }
}

#[test]
fn doubts_about_data_and_settings_are_warnings() {
    type Doubt = fn(&mut House);
    let cases: &[(&str, Doubt)] = &[
        ("lr_high", |h| h.spec.optim.lr = 1e-5),
        ("many_epochs", |h| h.spec.max_steps = 2_000),
        ("no_eval", |h| {
            h.put("dataset/eval.jsonl", "");
            h.index();
        }),
        ("file_not_listed", |h| h.put("dataset.json", r#"{"files": []}"#)),
        ("prompt_meta", |h| h.edit(|s| s["text_prompt"] = json!("In this scenario you sell."))),
        ("window_starts", |h| h.spec.puppeteer.first_window_weight = 0.1),
        ("secret_in_data", |h| h.edit(|s| s["text_prompt"] = json!("The key is sk-abcdefghijk12345678."))),
        ("single_turn", |h| {
            for id in ["a", "b", "c"] {
                let mut value = sidecar();
                value["turns"].as_array_mut().expect("turns").truncate(2);
                value["context_injections"] = json!([]);
                h.put(&format!("stereo_wav/{id}.json"), value.to_string());
            }
            h.index();
        }),
    ];
    for (code, doubt) in cases {
        let mut house = House::new();
        doubt(&mut house);
        let report = house.examine();
        assert!(codes(&report, Severity::Warning).contains(code), "{code}: {:#?}", report.findings);
        assert!(report.passed, "{code}: {:#?}", report.findings);
    }
}
