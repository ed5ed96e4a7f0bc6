//! Datasets that come and go as files.

use std::time::Duration;

use anyhow::{Context, Result};
use chassis::Completion;
use domain::UploadId;
use domain::job::{JobKind, JobSpec};
use reqwest::Method;
use serde_json::{Value, json};
use store::leases;

use crate::support::{Answer, Gateway};

async fn put(gateway: &Gateway, id: &str, media: &str, body: Vec<u8>) -> Result<Answer> {
    let request = gateway.request(Method::PUT, &format!("/v1/datasets/uploads/{id}"));
    Answer::read(request.header("content-type", media).body(body).send().await?).await
}

#[tokio::test]
async fn an_upload_is_stored_whole_under_the_clients_identifier_and_may_be_repeated() -> Result<()> {
    let gateway = Gateway::start_with(&[("PPX__GATEWAY__MAX_UPLOAD_BYTES", "100000")]).await?;
    let id = UploadId::generate().to_string();
    for _ in 0..2 {
        let stored = put(&gateway, &id, "application/x-tar", vec![7; 99_999]).await?;
        assert_eq!(stored.status, 200, "{}", stored.text);
        assert_eq!(
            (stored.body["id"].as_str(), stored.body["bytes"].as_u64()),
            (Some(id.as_str()), Some(99_999))
        );
        assert_eq!(stored.body["sha256"], artifacts::sha256_hex(&[7; 99_999]));
    }
    let folder = gateway.artifacts.local_path(&format!("uploads/{id}"))?;
    assert_eq!(std::fs::read_dir(&folder)?.count(), 1, "no parts are left");
    put(&gateway, &id, "application/x-tar", vec![7; 100_001]).await?.assert_problem(413, "payload_too_large");
    put(&gateway, &id, "application/json", b"{}".to_vec())
        .await?
        .assert_problem(415, "unsupported_media_type");
    put(&gateway, &id, "application/gzip", Vec::new()).await?.assert_problem(400, "invalid_request");
    put(&gateway, "upl_x", "application/x-tar", vec![7]).await?.assert_problem(400, "invalid_id");
    assert_eq!(std::fs::metadata(folder.join("archive"))?.len(), 99_999, "refused sends change nothing");
    Ok(())
}

#[tokio::test]
async fn an_import_becomes_a_dataset_with_one_job() -> Result<()> {
    let gateway = Gateway::start().await?;
    std::fs::create_dir(gateway.import.join("pharma"))?;
    let body =
        json!({"name": "p", "path": "pharma", "main_speaker_label": "SPEAKER_MAIN", "drop_voices": true});
    let made = gateway.post("/v1/datasets/imports", &body).await?;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = made.header("location").to_owned();
    assert_eq!(gateway.get(&path).await?.body, made.body, "the answer of the POST is the resource");
    assert_eq!(made.body["import"]["source"], json!({"path": "pharma"}));
    assert_eq!(made.body["progress"], json!({"done": 0, "total": 1, "unit": "jobs"}));
    gateway.get(&format!("{path}/report")).await?.assert_problem(409, "conflict");
    gateway.get(&format!("{path}/export")).await?.assert_problem(409, "conflict");
    let job = leases::claim_next(&gateway.store, JobKind::Import, "test", Duration::from_secs(30)).await?;
    let job = job.context("the import is ready")?;
    let JobSpec::Import { dataset_id } = job.spec else { panic!("{:?}", job.spec) };
    let done = Completion::Imported {
        dataset: dataset_id,
        summary: crate::support::summary(),
        dialogues: Vec::new(),
        voices: Vec::new(),
    };
    leases::finish(&gateway.store, job.claim, done).await?;
    let view = gateway.get(&path).await?.body;
    assert_eq!(
        (view["state"].as_str(), view["job_id"].as_str()),
        (Some("succeeded"), made.body["job_id"].as_str())
    );
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_imported_is_told_by_field() -> Result<()> {
    let gateway = Gateway::start().await?;
    std::os::unix::fs::symlink("/etc", gateway.import.join("link"))?;
    let id = UploadId::generate();
    for (body, pointers) in [
        (json!({"name": "a"}), vec!["/upload_id"]),
        (json!({"name": "a", "path": "x", "upload_id": id}), vec!["/upload_id"]),
        (json!({"name": "a", "upload_id": id}), vec!["/upload_id"]),
        (json!({"name": "a", "path": "../x"}), vec!["/path"]),
        (json!({"name": "a", "path": "/etc"}), vec!["/path"]),
        (json!({"name": "a", "path": "link"}), vec!["/path"]),
        (json!({"name": "a", "path": "missing"}), vec!["/path"]),
        (
            json!({"name": "a/b", "path": "", "eval_fraction": 0.7, "license": ""}),
            vec!["/name", "/path", "/eval_fraction", "/license"],
        ),
    ] {
        let answer = gateway.post("/v1/datasets/imports", &body).await?;
        answer.assert_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), pointers, "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn an_export_is_a_tar_of_every_file_and_damage_cuts_it_short() -> Result<()> {
    let gateway = Gateway::start().await?;
    let id = gateway.published_dataset("calls").await?;
    let path = format!("/v1/datasets/{id}/export");
    let get = async || anyhow::Ok(gateway.request(Method::GET, &path).send().await?);
    let answer = get().await?;
    assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"calls.tar\"");
    let total = answer.content_length().context("length")?;
    let bytes = answer.bytes().await?;
    assert_eq!(bytes.len() as u64, total);
    let mut found = Vec::new();
    let mut archive = tar::Archive::new(&bytes[..]);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text)?;
        found.push((entry.path()?.display().to_string(), text));
    }
    let card = gateway.artifacts.get(&format!("datasets/{id}/published/dataset.json")).await?;
    assert_eq!(found[0], ("calls/dataset/train.jsonl".into(), "{\"path\":\"x\"}\n".into()));
    assert_eq!(found[2], ("calls/dataset.json".into(), String::from_utf8(card.to_vec())?));
    std::fs::write(
        gateway.artifacts.local_path(&format!("datasets/{id}/published/dataset/train.jsonl"))?,
        "{\"path\":\"y\"}\n",
    )?;
    // The answer is cut before or after its headers are on their way.
    let whole = match get().await {
        Ok(answer) => answer.bytes().await.is_ok(),
        Err(_) => false,
    };
    assert!(!whole, "never a whole answer with wrong content");
    Ok(())
}

#[tokio::test]
async fn the_report_is_json_or_a_page_that_may_load_nothing() -> Result<()> {
    let gateway = Gateway::start().await?;
    let id = gateway.published_dataset("calls").await?;
    let folder = format!("datasets/{id}/report");
    gateway.artifacts.put_json(&format!("{folder}/report.json"), &json!({"name": "calls"})).await?;
    gateway.artifacts.put(&format!("{folder}/report.html"), "<!doctype html>page").await?;
    let get = async |accept: &str| {
        let request = gateway.request(Method::GET, &format!("/v1/datasets/{id}/report"));
        Answer::read(request.header("accept", accept).send().await?).await
    };
    for accept in ["application/json", "*/*", "application/json, text/html"] {
        assert_eq!(get(accept).await?.body, json!({"name": "calls"}), "{accept}");
    }
    for accept in ["text/html", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"] {
        let page = get(accept).await?;
        assert_eq!(
            (page.text.as_str(), page.header("content-type")),
            ("<!doctype html>page", "text/html; charset=utf-8")
        );
        let csp = page.header("content-security-policy");
        assert!(csp.contains("default-src 'none'") && csp.contains("sandbox"), "{csp}");
    }
    assert_eq!(get("text/html").await?.body, Value::Null);
    Ok(())
}

#[tokio::test]
async fn a_name_holds_numbered_versions() -> Result<()> {
    let gateway = Gateway::start().await?;
    std::fs::create_dir(gateway.import.join("pharma"))?;
    let built = json!({"name": "calls", "domain": "insurance_brokerage", "dialogues": 2});
    let imported = json!({"name": "calls", "path": "pharma"});
    let other = json!({"name": "other", "path": "pharma"});
    let mut made = Vec::new();
    for (path, body, version) in [
        ("/v1/datasets", &built, 1),
        ("/v1/datasets/imports", &imported, 2),
        ("/v1/datasets/imports", &other, 1),
        ("/v1/datasets", &built, 3),
    ] {
        let answer = gateway.post(path, body).await?;
        assert_eq!((answer.status, answer.body["version"].as_u64()), (201, Some(version)), "{}", answer.text);
        let kept = gateway.get(answer.header("location")).await?;
        assert_eq!(kept.body, answer.body);
        made.push(answer.body["id"].clone());
    }
    let found = async |name: &str| -> Result<Vec<Value>> {
        let list = gateway.get(&format!("/v1/datasets?name={name}")).await?;
        let data = list.body["data"].as_array().context("a list")?.clone();
        Ok(data.into_iter().map(|d| d["id"].clone()).collect())
    };
    assert_eq!(found("calls").await?, [made[3].clone(), made[1].clone(), made[0].clone()]);
    assert_eq!(found("calls@2").await?, [made[1].clone()]);
    assert_eq!(found("calls%402").await?, [made[1].clone()]);
    assert_eq!((found("calls@4").await?, found("cal").await?), (vec![], vec![]));
    for bad in ["calls@", "calls@0", "calls@two", "%00", ""] {
        gateway.get(&format!("/v1/datasets?name={bad}")).await?.assert_problem(400, "invalid_request");
    }
    let page = gateway.get("/v1/datasets?name=calls&limit=2").await?;
    let next = page.header("link").to_owned();
    assert!(next.contains("name=calls") && next.contains("limit=2"), "{next}");
    Ok(())
}
