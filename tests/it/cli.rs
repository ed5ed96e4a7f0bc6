//! What the README shows a new user, run as shown: `ppx` and curl against a stack.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::{Stack, binary, workspace_root};
use tokio::process::Command;

use crate::api::{ALL, Api, builder};

struct Ppx<'a> {
    stack: &'a Stack,
    dir: &'a Path,
}

impl Ppx<'_> {
    /// Runs a command; its exit code and what it printed as JSON.
    async fn run(&self, arguments: &[&str]) -> (i32, Value) {
        let ran = Command::new(binary("ppx").unwrap())
            .args(arguments)
            .arg("--json")
            .current_dir(self.dir)
            .env("PPX_API_URL", self.stack.gateway_url())
            .env("PPX_API_KEY", self.stack.api_key())
            .output();
        let ran = tokio::time::timeout(Duration::from_secs(180), ran).await.unwrap().unwrap();
        let printed = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        (ran.status.code().unwrap_or(-1), printed)
    }

    async fn ok(&self, arguments: &[&str]) -> Value {
        let (code, printed) = self.run(arguments).await;
        assert_eq!(code, 0, "ppx {arguments:?}: {printed}");
        printed
    }
}

/// One second of a tone, so that the user says something.
fn write_tone(path: &Path) {
    let tone = (0..24_000 * 4).map(|i| (f64::from(i) * 0.05).sin() as f32 * 0.3).collect();
    audio::wav::write_pcm16(path, &audio::Waveform::mono(24_000, tone)).unwrap();
}

#[tokio::test]
async fn the_command_line_goes_from_a_dataset_to_a_comparison_and_its_exit_codes_tell_what_happened() {
    let stack = builder(&ALL).start().await.unwrap();
    Api::new(&stack).register_tiny(&stack).await;
    let dir = tempfile::tempdir().unwrap();
    let ppx = Ppx { stack: &stack, dir: dir.path() };

    let made =
        ["dataset", "create", "--name", "cli", "--dialogues", "4", "--eval-fraction", "0.25", "--wait"];
    assert_eq!(ppx.ok(&made).await["state"], "succeeded");
    let short = ["--steps", "4", "--batch-size", "1", "--rank", "2", "--duration-sec", "64"];
    let train = [
        "train",
        "--name",
        "cli-run",
        "--dataset",
        "cli",
        "--base",
        "tiny",
        "--acknowledge",
        "all",
        "--wait",
    ];
    let dry = ["train", "--name", "cli-run", "--dataset", "cli", "--base", "tiny", "--dry-run"];
    let checked = ppx.ok(&[&dry[..], &short[..]].concat()).await;
    assert_eq!(
        (checked["passed"].as_bool(), checked["data"]["injection_yield"].as_f64()),
        (Some(true), Some(1.0))
    );
    let run = ppx.ok(&[&train[..], &short[..]].concat()).await;
    assert!(run["model_id"].as_str().is_some_and(|id| id.starts_with("mdl_")), "{run}");

    write_tone(&dir.path().join("in.wav"));
    std::fs::write(dir.path().join("ctx.jsonl"), "{\"frame\":10,\"text\":\"Zebra marker.\"}\n").unwrap();
    let talk = [
        "session",
        "talk",
        "--model",
        "cli-run",
        "--wav",
        "in.wav",
        "--inject",
        "ctx.jsonl",
        "--out",
        "out.wav",
        "--fast",
    ];
    let talked = ppx.ok(&talk).await;
    assert!(talked["stats"]["hidden_frames"].as_u64().is_some_and(|n| n > 0), "{talked}");
    assert!(!talked["transcript"].to_string().contains("Zebra"), "{talked}");
    let out = audio::wav::read(&dir.path().join("out.wav"), &audio::WavLimits::default()).unwrap();
    assert_eq!((out.rate, out.channels.len()), (24_000, 2));

    for model in ["tiny", "cli-run"] {
        let name = format!("eval-{model}");
        let evaluate = [
            "evaluate",
            "--name",
            &name,
            "--dataset",
            "cli",
            "--model",
            model,
            "--max-dialogues",
            "1",
            "--max-seconds",
            "8",
            "--wait",
        ];
        assert_eq!(ppx.ok(&evaluate).await["summary"]["injected_text_leak"], 0.0);
    }
    ppx.ok(&["compare", "eval-tiny", "eval-cli-run", "--out", "report"]).await;
    assert!(std::fs::read_to_string(dir.path().join("report/report.html")).unwrap().contains("eval-cli-run"));

    let unknown = "run_01938f6e0c3b7a54b1f2a0c4d5e6f708";
    let short_window =
        ["train", "--dataset", "cli", "--base", "tiny", "--steps", "1", "--duration-sec", "10"];
    for (arguments, code) in [
        // A window too short for the prompt: the check says so, and nothing starts.
        ([&short_window[..], &["--dry-run"]].concat(), 1),
        ([&short_window[..], &["--acknowledge", "all"]].concat(), 2),
        (vec!["dataset", "create", "--name", "cli"], 2),
        (vec!["runs", "list", "--key", "ppx_local_none"], 3),
        (vec!["runs", "get", unknown], 4),
        (vec!["runs", "list", "--url", "http://127.0.0.1:1"], 7),
    ] {
        assert_eq!(ppx.run(&arguments).await.0, code, "ppx {arguments:?}");
    }
}

#[tokio::test]
async fn the_curl_examples_of_the_readme_work_as_printed() {
    let stack = builder(&["gateway"]).start().await.unwrap();
    Api::new(&stack).register_tiny(&stack).await;
    let readme = std::fs::read_to_string(workspace_root().join("README.md")).unwrap();
    let block = readme.split("```").find(|block| block.contains("curl -s")).unwrap();
    let script: String = block
        .lines()
        .skip(1)
        // The test has an address and a key of its own.
        .filter(|line| !line.starts_with("export PPX_API_"))
        .map(|line| format!("{}\n", line.replace("curl -s", "curl -sS --fail-with-body")))
        .collect();
    assert_eq!(script.matches("--fail-with-body").count(), 4);
    let ran = Command::new("bash")
        .args(["-euc", &script])
        .env("PPX_API_URL", stack.gateway_url())
        .env("PPX_API_KEY", stack.api_key())
        .output()
        .await
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{script}\n{out}\n{err}");
    assert!(out.contains("pharma_adherence") && out.contains("/api/chat?ticket="), "{out}");
}
