//! Registration of models: verified, confined, copied.

use anyhow::Result;
use serde_json::json;

use crate::support::Gateway;

#[tokio::test]
async fn a_model_is_verified_copied_and_found_by_id_and_name() -> Result<()> {
    let gateway = Gateway::start().await?;
    let model = gateway.tiny_model("tiny").await?;
    assert_eq!((model["object"].as_str(), model["kind"].as_str()), (Some("model"), Some("base")));
    let id = model["id"].as_str().unwrap();
    assert_eq!(gateway.get(&format!("/v1/models/{id}")).await?.body, model);
    assert_eq!(gateway.get("/v1/models/tiny").await?.body, model);
    let stored = gateway.artifacts.local_path(&format!("models/{id}"))?;
    weights::verify(&stored)?;
    for file in model["files"].as_array().unwrap() {
        let bytes = std::fs::read(stored.join(file["path"].as_str().unwrap()))?;
        assert_eq!(artifacts::sha256_hex(&bytes), file["sha256"].as_str().unwrap());
    }
    let again = gateway.post("/v1/models", &json!({"name": "tiny", "path": "tiny"})).await?;
    again.assert_problem(409, "name_taken");
    assert_eq!(again.header("x-should-retry"), "false");
    assert_eq!(std::fs::read_dir(stored.parent().unwrap())?.count(), 1, "a refused model leaves no files");
    Ok(())
}

#[tokio::test]
async fn damaged_folders_and_paths_outside_are_refused_without_telling_where() -> Result<()> {
    let gateway = Gateway::start().await?;
    let outside = gateway.import.parent().unwrap().join("outside");
    weights::init_model(&outside, "tiny", 1)?;
    std::os::unix::fs::symlink(&outside, gateway.import.join("link"))?;
    for path in ["../outside", "link", "/etc", "", ".", "missing", "a/../../outside"] {
        let answer = gateway.post("/v1/models", &json!({"name": "m", "path": path})).await?;
        answer.assert_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), ["/path"], "{path}");
    }
    let damaged = gateway.import.join("damaged");
    weights::init_model(&damaged, "tiny", 1)?;
    let file = damaged.join("model.safetensors");
    let bytes = std::fs::read(&file)?;
    std::fs::write(&file, &bytes[..bytes.len() - 100])?;
    let answer = gateway.post("/v1/models", &json!({"name": "m", "path": "damaged"})).await?;
    answer.assert_problem(422, "invalid_model");
    assert!(answer.detail().contains("model.safetensors"), "{}", answer.text);
    assert!(!answer.text.contains(gateway.import.to_str().unwrap()), "{}", answer.text);
    // A file of the folder that is a link to elsewhere.
    let sly = gateway.import.join("sly");
    weights::init_model(&sly, "tiny", 1)?;
    std::fs::remove_file(sly.join("model.safetensors"))?;
    std::os::unix::fs::symlink(outside.join("model.safetensors"), sly.join("model.safetensors"))?;
    gateway
        .post("/v1/models", &json!({"name": "m", "path": "sly"}))
        .await?
        .assert_problem(422, "invalid_model");
    assert_eq!(gateway.get("/v1/models").await?.body["data"], json!([]));
    Ok(())
}

#[tokio::test]
async fn served_models_are_told_by_the_processes_and_changed_in_all_of_them() -> Result<()> {
    let process = Inference::start().await?;
    let gateway = Gateway::start_with(&[("PPX__GATEWAY__INFERENCE_URL", &process.url)]).await?;
    let model = gateway.tiny_model("tiny").await?;
    let id = model["id"].as_str().unwrap().to_owned();
    assert_eq!(gateway.get("/v1/serving/models").await?.body["data"], json!([]));
    let loaded = gateway.post("/v1/serving/models/tiny/load", &json!({})).await?;
    assert_eq!((loaded.status, &loaded.body["state"]), (200, &json!("ready")), "{}", loaded.text);
    assert_eq!((&loaded.body["id"], &loaded.body["processes"]), (&json!(id), &json!(1)));
    let listed = gateway.get("/v1/serving/models").await?;
    assert_eq!(listed.body["data"], json!([loaded.body]));
    process.busy.store(true, std::sync::atomic::Ordering::SeqCst);
    gateway.post("/v1/serving/models/tiny/unload", &json!({})).await?.assert_problem(409, "conflict");
    process.busy.store(false, std::sync::atomic::Ordering::SeqCst);
    let unloaded = gateway.post(&format!("/v1/serving/models/{id}/unload"), &json!({})).await?;
    assert_eq!((unloaded.status, &unloaded.body["state"]), (200, &json!("unloaded")));
    gateway.post("/v1/serving/models/nobody/load", &json!({})).await?.assert_problem(404, "not_found");
    Ok(())
}

#[tokio::test]
async fn without_an_inference_process_serving_is_unavailable() -> Result<()> {
    let nowhere = format!("http://127.0.0.1:{}", testkit::free_port()?);
    let gateway = Gateway::start_with(&[("PPX__GATEWAY__INFERENCE_URL", &nowhere)]).await?;
    assert_eq!(gateway.get("/v1/serving/models").await?.body["data"], json!([]), "nothing is served");
    gateway.tiny_model("tiny").await?;
    gateway.post("/v1/serving/models/tiny/load", &json!({})).await?.assert_problem(503, "unavailable");
    Ok(())
}

/// The internal operations of an inference process, spoken over a real socket.
struct Inference {
    url: String,
    busy: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Inference {
    async fn start() -> Result<Self> {
        use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let busy = std::sync::Arc::new(AtomicBool::new(false));
        let is_busy = std::sync::Arc::clone(&busy);
        tokio::spawn(async move {
            let mut loaded: Option<String> = None;
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = vec![0; 4_096];
                let read = socket.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
                let path = head.split(' ').nth(1).unwrap_or("").to_owned();
                let model = path.split('/').nth(3).unwrap_or("").to_owned();
                let (mut status, mut body) = ("200 OK", String::new());
                if !head.contains(&format!("x-ppx-internal: {}", crate::support::INTERNAL_TOKEN)) {
                    (status, body) =
                        ("401 Unauthorized", json!({"code": "unauthenticated", "detail": ""}).to_string());
                } else if path.ends_with("/load") {
                    loaded = Some(model);
                } else if path.ends_with("/unload") && is_busy.load(SeqCst) {
                    let told = json!({"code": "conflict", "detail": "model serves 1 sessions"});
                    (status, body) = ("409 Conflict", told.to_string());
                } else if path.ends_with("/unload") {
                    loaded = None;
                }
                if body.is_empty() {
                    let models = loaded.iter().map(|id| {
                        json!({"id": id, "state": "ready", "base_id": null, "sessions": 0, "memory_bytes": 5,
                            "prompts_kept": 0, "prompt_bytes": 0, "prompt_hits": 0})
                    });
                    body = json!({"models": models.collect::<Vec<_>>()}).to_string();
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all((head + &body).as_bytes()).await;
            }
        });
        Ok(Self { url, busy })
    }
}
