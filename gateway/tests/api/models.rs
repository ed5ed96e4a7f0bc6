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
