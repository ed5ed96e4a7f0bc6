//! Trainings: checked before they start, and their numbers in every form.

use anyhow::{Context, Result};
use audio::Waveform;
use audio::wav::encode_pcm16;
use domain::dataset::DatasetFile;
use domain::job::JobKind;
use domain::run::MetricPoint;
use domain::{DatasetId, RunId};
use serde_json::{Value, json};
use store::leases;

use crate::support::{Gateway, summary};

/// Seconds of a recording.
const SECONDS: usize = 12;

fn sidecar() -> Value {
    let turn = |i: usize| {
        let speaker = ["SPEAKER_BROKER", "SPEAKER_CLIENT"][i % 2];
        json!({"index": i, "speaker": speaker, "start": i as f64 * 2.0, "end": i as f64 * 2.0 + 1.0, "text": "yes"})
    };
    let turns: Vec<Value> = (0..5).map(turn).collect();
    let words: Vec<Value> =
        turns.iter().map(|t| json!([t["text"], [t["start"], t["end"]], t["speaker"]])).collect();
    json!({"alignments": words, "turns": turns, "text_prompt": "You work here.", "voice_prompt": null,
        "context_injections": [{"after_turn": 1, "text": "It is ready.", "frame_offset": 40}], "text_conditions": null})
}

/// A published dataset of two dialogues that can be trained on.
pub async fn trainable_dataset(gateway: &Gateway, name: &str) -> Result<DatasetId> {
    let body = json!({"name": name, "domain": "insurance_brokerage", "dialogues": 4});
    let made = gateway.post("/v1/datasets", &body).await?;
    let id: DatasetId = made.body["id"].as_str().context("id")?.parse()?;
    let folder = format!("datasets/{id}/published");
    let one: Vec<f32> = (0..SECONDS * 24_000).map(|i| 0.2 * (i as f32 * 0.05).sin()).collect();
    let wav = encode_pcm16(&Waveform { rate: 24_000, channels: vec![one.clone(), one] })?;
    let mut files: Vec<DatasetFile> = Vec::new();
    for (id, side) in [("a", "train"), ("b", "eval")] {
        let line = format!("{}\n", json!({"path": format!("../stereo_wav/{id}.wav"), "duration": SECONDS}));
        for (path, bytes) in [
            (format!("stereo_wav/{id}.wav"), wav.clone()),
            (format!("stereo_wav/{id}.json"), sidecar().to_string().into_bytes()),
            (format!("dataset/{side}.jsonl"), line.into_bytes()),
        ] {
            let file = gateway.artifacts.put(&format!("{folder}/{path}"), bytes).await?;
            files.push(DatasetFile { path, ..file });
        }
    }
    let mut lines: Vec<String> = files.iter().map(|f| format!("{}\0{}\n", f.path, f.sha256)).collect();
    lines.sort();
    let content_sha256 = artifacts::sha256_hex(lines.concat().as_bytes());
    gateway.artifacts.put_json(&format!("{folder}/dataset.json"), &json!({"files": files})).await?;
    let facts = domain::dataset::DatasetSummary { content_sha256, ..summary() };
    gateway.work_off_datasets_as(facts).await?;
    Ok(id)
}

fn found(body: &Value, severity: &str) -> Vec<String> {
    let all = body["findings"].as_array().into_iter().flatten();
    all.filter(|f| f["severity"] == severity).filter_map(|f| f["code"].as_str()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_dry_run_tells_everything_and_makes_nothing() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let dataset = trainable_dataset(&gateway, "d").await?;
    let body = json!({"name": "r", "dataset_id": dataset, "base_model": "tiny",
        "spec": {"max_steps": 5, "optim": {"lr": 0.001}, "duration_sec": 20.0}});
    let checked = gateway.post("/v1/runs?dry_run=true", &body).await?;
    assert_eq!((checked.status, checked.body["passed"].as_bool()), (200, Some(true)), "{}", checked.text);
    let warnings = found(&checked.body, "warning");
    for code in ["lr_high", "warm_up_short", "data_small"] {
        assert!(warnings.iter().any(|w| w == code), "{code}: {warnings:?}");
    }
    assert_eq!(checked.body["data"]["train_dialogues"], 1, "{}", checked.text);
    assert_eq!(checked.body["data"]["injection_yield"], 1.0);
    assert_eq!(checked.body["memory"]["devices"][0]["fits"], true);
    assert!(checked.body["disk"]["needed_bytes"].as_u64().is_some_and(|n| n > 0));
    let faulty = json!({"name": "r", "dataset_id": dataset, "base_model": "tiny", "spec": {"batch_size": 0}});
    let faulty = gateway.post("/v1/runs?dry_run=true", &faulty).await?;
    assert_eq!((faulty.status, faulty.body["passed"].as_bool()), (200, Some(false)));
    assert!(found(&faulty.body, "error").contains(&"spec_invalid".to_owned()), "{}", faulty.text);
    assert_eq!(gateway.get("/v1/runs").await?.body["data"], json!([]));
    Ok(())
}

#[tokio::test]
async fn a_run_starts_only_without_errors_and_with_its_warnings_acknowledged() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let dataset = trainable_dataset(&gateway, "d").await?;
    let mut body = json!({"name": "r", "dataset_id": dataset, "base_model": "tiny",
        "spec": {"max_steps": 5, "optim": {"lr": 0.001}, "duration_sec": 20.0}});
    let refused = gateway.post("/v1/runs", &body).await?;
    refused.assert_problem(422, "preflight_failed");
    assert!(refused.pointers().contains(&"/spec/optim/lr"), "{}", refused.text);
    assert!(refused.detail().contains("acknowledge"), "{}", refused.text);
    body["acknowledge"] = json!(["lr_high"]);
    let refused = gateway.post("/v1/runs", &body).await?;
    refused.assert_problem(422, "preflight_failed");
    assert!(!refused.pointers().contains(&"/spec/optim/lr"), "{}", refused.text);
    body["acknowledge"] = json!(true);
    let made = gateway.post("/v1/runs", &body).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    let key = format!("datasets/{dataset}/published/stereo_wav/a.json");
    std::fs::write(gateway.artifacts.local_path(&key)?, sidecar().to_string().replace("BROKER", "BROKEN"))?;
    body["name"] = json!("r2");
    let refused = gateway.post("/v1/runs", &body).await?;
    refused.assert_problem(422, "preflight_failed");
    let codes: Vec<&str> =
        refused.body["errors"].as_array().into_iter().flatten().filter_map(|e| e["code"].as_str()).collect();
    assert!(codes.contains(&"label_missing") && codes.contains(&"file_damaged"), "{codes:?}");
    assert!(refused.detail().contains("BROKEN"), "the labels there are told: {}", refused.detail());
    Ok(())
}

#[tokio::test]
async fn the_numbers_of_a_run_come_in_every_form() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let dataset = trainable_dataset(&gateway, "d").await?;
    let body = json!({"name": "r", "dataset_id": dataset, "base_model": "tiny", "acknowledge": true});
    let made = gateway.post("/v1/runs", &body).await?;
    let path = made.header("location").to_owned();
    gateway.get(&format!("{path}/loss.png")).await?.assert_problem(409, "conflict");
    let run: RunId = made.body["id"].as_str().context("id")?.parse()?;
    let lease = std::time::Duration::from_secs(60);
    let job = leases::claim_next(&gateway.store, JobKind::Train, "test", lease).await?.context("a job")?;
    let point = |step: u32| MetricPoint { step, name: "train/loss".into(), value: 3.0 / f64::from(step) };
    let points: Vec<_> = (1..=3).map(point).collect();
    store::metrics::record(&gateway.store, job.claim, run, &points).await?;
    let csv = gateway.get(&format!("{path}/metrics?format=csv")).await?;
    assert!(csv.header("content-type").starts_with("text/csv"), "{csv:?}");
    assert!(csv.text.starts_with("step,name,value,recorded_at\r\n1,train/loss,3,"), "{}", csv.text);
    assert!(csv.header("content-disposition").contains("metrics.csv"));
    let accept = |kind: &'static str| {
        gateway
            .http
            .get(format!("{}{path}/metrics", gateway.base))
            .bearer_auth(&gateway.key)
            .header("accept", kind)
    };
    let same = accept("text/csv").send().await?.text().await?;
    assert_eq!(same, csv.text);
    let parquet = accept("application/vnd.apache.parquet").send().await?;
    assert_eq!(parquet.headers()["content-type"], "application/vnd.apache.parquet");
    let parquet = parquet.bytes().await?;
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let lines = gateway.get(&format!("{path}/metrics?format=jsonl&name=train/loss")).await?.text;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let picture =
        gateway.http.get(format!("{}{path}/loss.png", gateway.base)).bearer_auth(&gateway.key).send().await?;
    assert_eq!(picture.headers()["content-type"], "image/png");
    assert!(picture.bytes().await?.starts_with(b"\x89PNG"));
    gateway.get(&format!("{path}/loss.png?names=none")).await?.assert_problem(409, "conflict");
    assert_eq!(gateway.get(&format!("{path}/metrics?format=xml")).await?.status, 400);
    let list = gateway.get(&format!("{path}/metrics")).await?.body;
    assert_eq!(list["data"].as_array().map(Vec::len), Some(3));
    Ok(())
}
