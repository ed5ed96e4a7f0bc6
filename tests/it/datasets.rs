//! A dataset made elsewhere comes in with `ppx dataset import`, goes out with `export`, and comes in again as it was.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Stack, binary};
use tokio::process::Command;

use crate::api::{Api, builder};

pub struct Ran {
    pub code: i32,
    pub json: Value,
    pub told: String,
}

pub async fn ppx(stack: &Stack, dir: &Path, arguments: &[&str]) -> Ran {
    let ran = Command::new(binary("ppx").unwrap())
        .args(arguments)
        .arg("--json")
        .current_dir(dir)
        .env("PPX_API_URL", stack.gateway_url())
        .env("PPX_API_KEY", stack.api_key())
        .output();
    let ran = tokio::time::timeout(Duration::from_secs(120), ran).await.unwrap().unwrap();
    Ran {
        code: ran.status.code().unwrap_or(-1),
        json: serde_json::from_slice(&ran.stdout).unwrap_or_default(),
        told: String::from_utf8_lossy(&ran.stderr).into_owned(),
    }
}

/// Six calls of four seconds in the published layout, with the absolute paths of another machine.
pub fn write_source(root: &Path) {
    for folder in ["stereo_wav", "dataset"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let tone = |from: usize| -> Vec<f32> {
        let on = from..from + 36_000;
        (0..96_000).map(|i| if on.contains(&i) { 0.3 * (i as f32 * 0.05).sin() } else { 0.0 }).collect()
    };
    let sound = audio::Waveform::stereo(24_000, tone(0), tone(48_000));
    let sidecar = json!({
        "alignments": [["Good", [0.1, 0.5], "SPEAKER_BROKER"], ["morning.", [0.6, 1.4], "SPEAKER_BROKER"],
                       ["Hello.", [2.1, 3.2], "SPEAKER_CLIENT"]],
        "turns": [{"index": 0, "speaker": "SPEAKER_BROKER", "start": 0.1, "end": 1.4, "text": "Good morning."},
                  {"index": 1, "speaker": "SPEAKER_CLIENT", "start": 2.1, "end": 3.2, "text": "Hello."}],
        "text_prompt": "ROLE: broker", "voice_prompt": null,
        "context_injections": [{"after_turn": 1, "text": "Say yes."}]
    });
    let mut lines = [String::new(), String::new()];
    for n in 0..6 {
        audio::wav::write_pcm16(&root.join(format!("stereo_wav/call-{n}.wav")), &sound).unwrap();
        std::fs::write(root.join(format!("stereo_wav/call-{n}.json")), sidecar.to_string()).unwrap();
        let path = format!("/home/them/calls/stereo_wav/call-{n}.wav");
        lines[usize::from(n == 5)] += &format!("{}\n", json!({"path": path, "duration": 4.0}));
    }
    std::fs::write(root.join("dataset/train.jsonl"), &lines[0]).unwrap();
    std::fs::write(root.join("dataset/eval.jsonl"), &lines[1]).unwrap();
}

#[tokio::test]
async fn a_dataset_comes_in_goes_out_and_comes_in_again_as_it_was() {
    let stack = builder(&["gateway", "dataset"]).start().await.unwrap();
    Api::new(&stack).register_tiny(&stack).await;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("calls");
    write_source(&source);

    let ran =
        ppx(&stack, dir.path(), &["dataset", "import", "calls", "--license", "cc-by-4.0", "--wait"]).await;
    assert_eq!((ran.code, ran.json["state"].as_str()), (0, Some("succeeded")), "{} {}", ran.json, ran.told);
    let hash = ran.json["summary"]["content_sha256"].clone();
    assert_eq!((ran.json["name"].as_str(), ran.json["spec"]["dialogues"].as_u64()), (Some("calls"), Some(6)));

    for out in ["out/calls", "out/calls.tar"] {
        std::fs::create_dir_all(dir.path().join("out")).unwrap();
        let ran = ppx(&stack, dir.path(), &["dataset", "export", "calls", out]).await;
        assert_eq!((ran.code, &ran.json["content_sha256"]), (0, &hash), "{}", ran.told);
        let name = out.replace(['/', '.'], "-");
        let ran = ppx(&stack, dir.path(), &["dataset", "import", out, "--name", &name, "--wait"]).await;
        assert_eq!((ran.code, &ran.json["summary"]["content_sha256"]), (0, &hash), "{out}: {}", ran.told);
    }
    // A name that exists gets the next version; the name alone is the last one.
    let ran = ppx(&stack, dir.path(), &["dataset", "import", "out/calls", "--name", "calls", "--wait"]).await;
    assert_eq!((ran.json["version"].as_u64(), &ran.json["summary"]["content_sha256"]), (Some(2), &hash));
    for (name, version) in [("calls@1", 1), ("calls@2", 2), ("calls", 2)] {
        let ran = ppx(&stack, dir.path(), &["dataset", "get", name]).await;
        assert_eq!((ran.code, ran.json["version"].as_u64()), (0, Some(version)), "{name}: {}", ran.told);
    }
    assert_eq!(ppx(&stack, dir.path(), &["dataset", "get", "calls@3"]).await.code, 4);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("out")).unwrap().collect();
    assert_eq!(left.len(), 2, "no parts are left: {left:?}");
    let card = std::fs::read_to_string(dir.path().join("out/calls/README.md")).unwrap();
    assert!(card.starts_with("---\nlicense: cc-by-4.0\n"), "{card}");

    let ran = ppx(&stack, dir.path(), &["dataset", "report", "out-calls", "--html", "report.html"]).await;
    assert_eq!(ran.code, 0, "{}", ran.told);
    assert!(std::fs::read_to_string(dir.path().join("report.html")).unwrap().contains("<svg"));
    let report = ppx(&stack, dir.path(), &["dataset", "report", "calls@1"]).await.json;
    assert_eq!(report["import"]["repairs"]["injection_placed"]["count"], 6);
    assert_eq!(report["measured"]["tokens"]["windows"][2]["with_start"], 6, "{report}");

    std::fs::remove_file(source.join("stereo_wav/call-2.json")).unwrap();
    std::fs::write(source.join("stereo_wav/call-3.wav"), "no sound").unwrap();
    let ran = ppx(&stack, dir.path(), &["dataset", "import", "calls", "--name", "bad", "--wait"]).await;
    assert_eq!(ran.code, 1, "{}", ran.told);
    for fault in [
        "dataset/train.jsonl:3: \"stereo_wav/call-2.wav\" has no sidecar",
        "dataset/train.jsonl:4: \"stereo_wav/call-3.wav\" is no usable WAV",
    ] {
        assert!(ran.told.contains(fault), "{fault}: {}", ran.told);
    }
}
