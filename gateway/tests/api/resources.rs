//! Datasets, runs, evaluations and comparisons from request to result, with the workers played by the test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use chassis::Completion;
use domain::job::{JobKind, JobSpec};
use domain::run::MetricPoint;
use domain::{ModelId, RunId};
use serde_json::json;
use store::leases;

use crate::support::Gateway;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_dataset_goes_from_queued_to_published_and_its_files_can_be_read() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body =
        json!({"name": "d", "domain": "pharma_adherence", "dialogues": 10, "seed": 3, "eval_fraction": 0.2});
    let made = gateway.post("/v1/datasets", &body).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.body["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/datasets/{id}");
    assert_eq!(made.header("location"), path);
    assert_eq!(gateway.get(&path).await?.body, made.body, "the answer of the POST is the resource");
    assert_eq!(made.body["progress"], json!({"done": 0, "total": 10, "unit": "jobs"}));
    assert_eq!(made.body["spec"]["shard_size"], 4);
    gateway.get(&format!("{path}/files")).await?.assert_problem(409, "conflict");
    gateway.work_off_datasets().await?;
    let done = gateway.get(&path).await?.body;
    assert_eq!((done["state"].as_str(), done["progress"]["done"].as_u64()), (Some("succeeded"), Some(10)));
    assert!(done["published_at"].is_string() && done["summary"]["train_dialogues"] == 3);
    let published = gateway.published_dataset("p").await?;
    let files = gateway.get(&format!("/v1/datasets/{published}/files")).await?.body;
    assert_eq!(files["data"][0]["path"], "dataset/train.jsonl");
    let file = gateway.get(&format!("/v1/datasets/{published}/files?path=dataset/train.jsonl")).await?;
    assert_eq!(
        (file.text.as_str(), file.header("content-type")),
        ("{\"path\":\"x\"}\n", "application/x-ndjson")
    );
    for path in ["x", "../published/rejects.jsonl", "dataset", "/etc/passwd"] {
        let answer = gateway.get(&format!("/v1/datasets/{published}/files?path={path}")).await?;
        answer.assert_problem(404, "not_found");
    }
    let key = format!("datasets/{published}/published/rejects.jsonl");
    std::fs::write(gateway.artifacts.local_path(&key)?, "damage")?;
    let answer = gateway.get(&format!("/v1/datasets/{published}/files?path=rejects.jsonl")).await?;
    answer.assert_problem(500, "artifact_damaged");
    assert!(!answer.text.contains("sha256"), "the cause stays in the log: {}", answer.text);
    Ok(())
}

#[tokio::test]
async fn a_cancelled_job_takes_its_dataset_with_it() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "d", "domain": "insurance_brokerage", "dialogues": 2});
    let id = gateway.post("/v1/datasets", &body).await?.body["id"].as_str().unwrap().to_owned();
    let jobs = gateway.get(&format!("/v1/jobs?subject={id}&kind=generate")).await?;
    let job = jobs.body["data"][0]["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let answer = gateway.post(&format!("/v1/jobs/{job}/cancel"), &json!({})).await?;
        assert_eq!(
            (answer.status, answer.body["state"].as_str()),
            (200, Some("cancelled")),
            "{}",
            answer.text
        );
    }
    assert_eq!(gateway.get(&format!("/v1/datasets/{id}")).await?.body["state"], "cancelled");
    Ok(())
}

#[tokio::test]
async fn a_run_needs_a_published_dataset_and_yields_a_model() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let body = json!({"name": "early", "domain": "insurance_brokerage", "dialogues": 2});
    let early = gateway.post("/v1/datasets", &body).await?.body["id"].clone();
    let answer =
        gateway.post("/v1/runs", &json!({"name": "r", "dataset_id": early, "base_model": "tiny"})).await?;
    answer.assert_problem(409, "conflict");
    let dataset = crate::runs::trainable_dataset(&gateway, "d").await?;
    let unknown =
        gateway.post("/v1/runs", &json!({"name": "r", "dataset_id": dataset, "base_model": "big"})).await?;
    assert_eq!(unknown.pointers(), ["/base_model"], "{}", unknown.text);
    let taken = gateway
        .post("/v1/runs", &json!({"name": "tiny", "dataset_id": dataset, "base_model": "tiny"}))
        .await?;
    taken.assert_problem(409, "name_taken");
    let body = json!({"name": "r1", "dataset_id": dataset, "base_model": "tiny", "spec": {"max_steps": 5, "optim": {"lr": 0.001}}, "acknowledge": true});
    let made = gateway.post("/v1/runs", &body).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.body["spec"]["batch_size"], 4, "defaults are filled in");
    let path = made.header("location").to_owned();
    assert_eq!(gateway.get(&path).await?.body, made.body);
    let run: RunId = made.body["id"].as_str().unwrap().parse()?;
    let job = leases::claim_next(&gateway.store, JobKind::Train, "test", LEASE).await?.context("a job")?;
    let points: Vec<_> =
        (1..=3).map(|step| MetricPoint { step, name: "train/loss".into(), value: 3.0 }).collect();
    store::metrics::record(&gateway.store, job.claim, run, &points).await?;
    store::runs::add_checkpoint(&gateway.store, job.claim, run, 3, "runs/x", &[]).await?;
    let metrics = gateway.get(&format!("{path}/metrics?name=train/loss")).await?;
    assert_eq!(metrics.body["data"][2], json!({"step": 3, "name": "train/loss", "value": 3.0}));
    assert_eq!(gateway.get(&format!("{path}/checkpoints")).await?.body["data"][0]["step"], 3);
    let base = store::models::find(&gateway.store, "tiny").await?.id;
    let merged = store::models::NewModel {
        id: ModelId::generate(),
        name: "r1".into(),
        kind: "merged",
        prefix: "models/x".into(),
        files: vec![],
        base_id: Some(base),
        run_id: Some(run),
    };
    let done = Completion::Trained { run, summary: json!({"steps": 5}), merged };
    leases::finish(&gateway.store, job.claim, done).await?;
    let view = gateway.get(&path).await?.body;
    assert_eq!(view["state"], "succeeded");
    assert_eq!(view["model_id"], gateway.get("/v1/models/r1").await?.body["id"]);
    let cancelled = gateway.post(&format!("{path}/cancel"), &json!({})).await?;
    assert_eq!(cancelled.body["state"], "succeeded", "a run that is over stays as it is");
    Ok(())
}

#[tokio::test]
async fn evaluations_are_compared_once_both_are_finished() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let dataset = gateway.published_dataset("d").await?;
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let made = gateway
            .post("/v1/evaluations", &json!({"name": name, "dataset_id": dataset, "model": "tiny"}))
            .await?;
        assert_eq!(made.status, 201, "{}", made.text);
        assert_eq!(gateway.get(made.header("location")).await?.body, made.body);
        ids.push(made.body["id"].clone());
    }
    let body = json!({"name": "c", "baseline_id": ids[0], "candidate_id": ids[1]});
    gateway.post("/v1/comparisons", &body).await?.assert_problem(409, "conflict");
    while let Some(job) = leases::claim_next(&gateway.store, JobKind::Evaluate, "test", LEASE).await? {
        let JobSpec::Evaluate { evaluation_id } = job.spec else { anyhow::bail!("evaluate") };
        let score = store::evaluations::Score {
            dialogue: "d1".into(),
            metrics: BTreeMap::from([("wer".into(), 0.5)]),
            recording: None,
        };
        let done = Completion::Evaluated {
            evaluation: evaluation_id,
            summary: json!({"wer": 0.5}),
            scores: vec![score],
        };
        leases::finish(&gateway.store, job.claim, done).await?;
    }
    let scores = gateway.get(&format!("/v1/evaluations/{}/scores", ids[0].as_str().unwrap())).await?;
    assert_eq!(
        scores.body["data"][0],
        json!({"dialogue": "d1", "metrics": {"wer": 0.5}, "is_recorded": false})
    );
    let same = json!({"name": "c", "baseline_id": ids[0], "candidate_id": ids[0]});
    assert_eq!(gateway.post("/v1/comparisons", &same).await?.pointers(), ["/candidate_id"]);
    let made = gateway.post("/v1/comparisons", &body).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = made.header("location").to_owned();
    gateway.get(&format!("{path}/report.html")).await?.assert_problem(409, "conflict");
    let job = leases::claim_next(&gateway.store, JobKind::Compare, "test", LEASE).await?.context("a job")?;
    let JobSpec::Compare { comparison_id } = job.spec else { anyhow::bail!("compare") };
    gateway.artifacts.put("comparisons/r.json", "{}").await?;
    gateway.artifacts.put("comparisons/r.html", "<p>").await?;
    let done = Completion::Compared {
        comparison: comparison_id,
        summary: json!({}),
        report_json: "comparisons/r.json".into(),
        report_html: "comparisons/r.html".into(),
    };
    leases::finish(&gateway.store, job.claim, done).await?;
    let view = gateway.get(&path).await?.body;
    assert_eq!(gateway.get(view["report_json_url"].as_str().unwrap()).await?.text, "{}");
    let page = gateway.get(view["report_html_url"].as_str().unwrap()).await?;
    assert_eq!((page.text.as_str(), page.header("content-type")), ("<p>", "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").contains("sandbox"));
    Ok(())
}

#[tokio::test]
async fn domains_are_listed_with_their_axes() -> Result<()> {
    let gateway = Gateway::start().await?;
    let list = gateway.get("/v1/domains").await?;
    let ids: Vec<_> =
        list.body["data"].as_array().unwrap().iter().map(|d| d["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["insurance_brokerage", "pharma_adherence"]);
    let one = gateway.get("/v1/domains/insurance_brokerage").await?;
    assert_eq!(one.body["axes"].as_array().unwrap().len(), 8);
    gateway.get("/v1/domains/x").await?.assert_problem(404, "not_found");
    Ok(())
}
