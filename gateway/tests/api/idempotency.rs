//! `Idempotency-Key`: one effect, however often and however concurrently a request is sent.

use anyhow::Result;
use futures::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gateway};

async fn send(gateway: &Gateway, path: &str, key: &str, body: &Value) -> Result<Answer> {
    let request = gateway.request(Method::POST, path).header("idempotency-key", key).json(body);
    Answer::read(request.send().await?).await
}

#[tokio::test]
async fn fifty_concurrent_posts_with_one_key_make_one_dataset() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "once", "domain": "insurance_brokerage", "dialogues": 8});
    let answers = try_join_all((0..50).map(|_| send(&gateway, "/v1/datasets", "key-1", &body))).await?;
    let fresh =
        answers.iter().filter(|a| a.status == 201 && a.header("idempotent-replayed").is_empty()).count();
    assert_eq!(fresh, 1);
    for answer in &answers {
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(answer.body, answers[0].body);
        assert_eq!(answer.header("location"), answers[0].header("location"));
    }
    assert_eq!(gateway.get("/v1/datasets").await?.body["data"].as_array().unwrap().len(), 1);
    // generate, render, align per shard of four dialogues, and assemble
    assert_eq!(gateway.get("/v1/jobs?limit=100").await?.body["data"].as_array().unwrap().len(), 7);
    Ok(())
}

#[tokio::test]
async fn a_key_belongs_to_its_body_path_and_caller() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 2});
    let first = send(&gateway, "/v1/datasets", "k", &body).await?;
    assert_eq!(first.status, 201, "{}", first.text);
    let reordered = json!({"dialogues": 2, "domain": "insurance_brokerage", "name": "a"});
    let again = send(&gateway, "/v1/datasets", "k", &reordered).await?;
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, "true"));
    assert_eq!(again.body, first.body);
    let other = json!({"name": "b", "domain": "insurance_brokerage", "dialogues": 2});
    send(&gateway, "/v1/datasets", "k", &other).await?.assert_problem(422, "idempotency_mismatch");
    assert_eq!(first.body["version"], 1);
    // A request that is not a repetition is the next version of the dataset.
    let next = send(&gateway, "/v1/datasets", "k2", &body).await?;
    assert_eq!((next.status, next.body["version"].as_u64()), (201, Some(2)), "{}", next.text);
    let answer =
        send(&gateway, "/v1/api-keys", "k", &json!({"name": "x", "scopes": ["datasets:write"]})).await?;
    assert_eq!(answer.status, 201);
    let request =
        gateway.bare(Method::POST, "/v1/datasets").bearer_auth(answer.body["key"].as_str().unwrap());
    let request = request.header("idempotency-key", "k").json(&other);
    assert_eq!(Answer::read(request.send().await?).await?.status, 201, "another caller's key is another key");
    for bad in ["", &"x".repeat(256)] {
        send(&gateway, "/v1/datasets", bad, &body).await?.assert_problem(400, "invalid_request");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_free() -> Result<()> {
    let gateway = Gateway::start().await?;
    let bad = json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 1});
    send(&gateway, "/v1/datasets", "k", &bad).await?.assert_problem(422, "validation_failed");
    let good = json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 2});
    assert_eq!(send(&gateway, "/v1/datasets", "k", &good).await?.status, 201);
    Ok(())
}

#[tokio::test]
async fn a_repeated_answer_does_not_show_the_secret_again() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "x", "scopes": ["jobs:read"]});
    let first = send(&gateway, "/v1/api-keys", "k", &body).await?;
    let again = send(&gateway, "/v1/api-keys", "k", &body).await?;
    assert!(first.body["key"].is_string());
    assert!(again.body["key"].is_null());
    assert_eq!(first.body["id"], again.body["id"]);
    Ok(())
}
