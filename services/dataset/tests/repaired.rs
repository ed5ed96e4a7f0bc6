//! Sources with oddities: each is put right by a stated rule and counted, or read as what it is.

mod common;

use common::{IDS, Source, manifest, options, sound};
use dataset::import::ImportOptions;
use serde_json::{Value, json};

const TRAIN: &str = "dataset/train.jsonl";

struct Repair {
    name: &'static str,
    damage: fn(&Source),
    repair: &'static str,
    count: u64,
}

fn repair(name: &'static str, damage: fn(&Source), repair: &'static str, count: u64) -> Repair {
    Repair { name, damage, repair, count }
}

fn repairs() -> Vec<Repair> {
    let all = |f: fn(&Source)| f;
    vec![
        repair(
            "a byte order mark",
            |s| s.write(TRAIN, format!("\u{feff}{}", manifest(&IDS[..2]))),
            "byte_order_mark",
            1,
        ),
        repair("CRLF", |s| s.write(TRAIN, manifest(&IDS[..2]).replace('\n', "\r\n")), "crlf_line_ends", 1),
        repair(
            "blank lines",
            |s| s.write(TRAIN, manifest(&IDS[..2]).replace('\n', "\n\n \n")),
            "blank_lines",
            4,
        ),
        repair(
            "paths from the root",
            |s| {
                s.write(TRAIN, manifest(&IDS[..2]).replace("/home/them/data/pharma/", ""));
            },
            "path_from_root",
            2,
        ),
        repair(
            "a rounded duration",
            |s| s.write(TRAIN, manifest(&IDS[..2]).replacen("2.0", "2.04", 1)),
            "duration_corrected",
            1,
        ),
        repair(
            "no duration",
            |s| {
                s.write(TRAIN, manifest(&IDS[..2]).replace(",\"duration\":2.0", ""));
            },
            "duration_added",
            2,
        ),
        repair("48 kHz", |s| s.wav("stereo_wav/dial-00000.wav", &sound(2, 48_000)), "audio_resampled", 1),
        repair(
            "a zero-length word",
            |s| s.edit_sidecar(|v| v["alignments"][1][1] = json!([0.45, 0.45])),
            "zero_length_word_widened",
            1,
        ),
        repair(
            "a word that ends before it starts",
            |s| {
                s.edit_sidecar(|v| v["alignments"][1][1] = json!([0.45, 0.2]));
            },
            "negative_length_word_widened",
            1,
        ),
        repair(
            "unsorted words",
            |s| s.edit_sidecar(|v| v["alignments"].as_array_mut().expect("words").reverse()),
            "words_sorted",
            3,
        ),
        repair(
            "a word without times",
            |s| s.edit_sidecar(|v| v["alignments"][1][1] = Value::Null),
            "untimed_word_interpolated",
            1,
        ),
        repair(
            "an injection without a frame",
            |s| {
                s.edit_sidecar(|v| v["context_injections"][0]["frame_offset"] = Value::Null);
            },
            "injection_placed",
            1,
        ),
        repair("no turns", |s| s.edit_sidecar(|v| v["turns"] = Value::Null), "turns_from_words", 1),
        repair(
            "a voice with a clip of its name",
            all(|s| {
                s.wav("speaker_samples/NATF2.wav", &sound(1, 24_000));
                s.edit_sidecar(|v| v["voice_prompt"] = "NATF2.pt".into());
            }),
            "voice_from_sample",
            1,
        ),
        repair(
            "labels of other data",
            |s| {
                s.edit_sidecar(|v| {
                    for word in v["alignments"].as_array_mut().expect("words") {
                        word[2] = if word[2] == "SPEAKER_BROKER" { "MODEL".into() } else { "USER".into() };
                    }
                    v["turns"][0]["speaker"] = "MODEL".into();
                    v["turns"][1]["speaker"] = "USER".into();
                })
            },
            "word_relabelled",
            4,
        ),
    ]
}

#[test]
fn every_repair_is_made_by_its_rule_and_counted() {
    for case in repairs() {
        let source = Source::seed();
        (case.damage)(&source);
        let (prepared, _, findings) = source.check(&options());
        assert_eq!((case.name, findings.faults.as_slice()), (case.name, &[][..]));
        assert_eq!((case.name, prepared.len()), (case.name, 3));
        assert_eq!((case.name, findings.repairs_of(case.repair)), (case.name, case.count), "{findings:#?}");
    }
}

#[test]
fn voices_that_are_no_audio_are_left_out_when_that_is_asked_for() {
    let source = Source::seed();
    source.edit_sidecar(|v| v["voice_prompt"] = "NATF2.pt".into());
    let (prepared, _, findings) = source.check(&ImportOptions { drop_voices: true, ..options() });
    assert_eq!(findings.faults, []);
    assert_eq!(findings.repairs_of("voice_dropped"), 3);
    for sample in prepared {
        let sidecar: Value = serde_json::from_slice(&sample.sidecar).expect("JSON");
        assert_eq!((sample.voice, &sidecar["voice_prompt"]), (None, &Value::Null));
    }
}

/// A7: `call.mp3.wav` has the sidecar `call.mp3.json`; words of one speaker, no turns, no records, no splits.
#[test]
fn single_speaker_data_is_read_with_its_label() {
    let source = Source { dir: tempfile::tempdir().expect("a folder") };
    for name in ["call.mp3", "other"] {
        source.wav(&format!("data_stereo/{name}.wav"), &sound(2, 24_000));
        source.json(
            &format!("data_stereo/{name}.json"),
            &json!({"alignments": [["Hello", [0.0, 0.4], "SPEAKER_MAIN"], ["you", [0.5, 0.8], "SPEAKER_MAIN"]]}),
        );
    }
    let line =
        |name: &str| format!("{}\n", json!({"path": format!("data_stereo/{name}.wav"), "duration": 2.0}));
    source.write("data.jsonl", line("call.mp3") + &line("other"));
    let (prepared, plan, findings) = source.check(&options());
    assert_eq!(findings.faults, []);
    assert_eq!(prepared.iter().map(|p| p.record.id.as_str()).collect::<Vec<_>>(), ["call.mp3", "other"]);
    let sidecar: Value = serde_json::from_slice(&prepared[0].sidecar).expect("JSON");
    assert_eq!(sidecar["alignments"][0], json!(["Hello", [0.0, 0.4], "SPEAKER_BROKER"]));
    assert_eq!(prepared[0].script, "Speaker 1: Hello you\n");
    assert!(!plan.is_split);
    assert_eq!(findings.warnings["no_user_words"].count, 2);
    let named = ImportOptions { main_speaker_label: Some("SPEAKER_BROKER".into()), ..options() };
    assert!(source.check(&named).2.faults.iter().all(|f| f.code == "no_agent_words"));
}
