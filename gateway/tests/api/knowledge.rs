//! Knowledge bases, puppeteers of sessions, and the ways into a live session.

use anyhow::Result;
use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Gateway};

#[tokio::test]
async fn a_knowledge_base_is_stored_listed_read_and_deleted() -> Result<()> {
    let gateway = Gateway::start().await?;
    let body = json!({"name": "acme", "markdown": "# Renewal\n- Policy 2266 renews on March 3.\n- Call by Friday.\n"});
    let made = gateway.post("/v1/knowledge-bases", &body).await?;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(
        (made.body["object"].as_str(), made.body["fact_count"].as_u64()),
        (Some("knowledge_base"), Some(2))
    );
    gateway.post("/v1/knowledge-bases", &body).await?.assert_problem(409, "name_taken");
    let path = format!("/v1/knowledge-bases/{}", made.body["id"].as_str().unwrap());
    assert_eq!(made.header("location"), path);
    let read = gateway.get(&path).await?;
    assert_eq!(
        read.body["facts"][0],
        json!({"id": "fact-1", "text": "Policy 2266 renews on March 3.", "tags": ["Renewal"]})
    );
    assert_eq!(gateway.get("/v1/knowledge-bases").await?.body["data"][0]["name"], "acme");
    let gone = Answer::read(gateway.request(Method::DELETE, &path).send().await?).await?;
    assert_eq!(gone.status, 204);
    gateway.get(&path).await?.assert_problem(404, "not_found");
    Ok(())
}

#[tokio::test]
async fn facts_that_cannot_be_injected_are_refused_where_they_stand() -> Result<()> {
    let gateway = Gateway::start().await?;
    for (body, pointer, word) in [
        (json!({"name": "a"}), "/facts", "either"),
        (json!({"name": "a", "facts": [], "markdown": ""}), "/facts", "either"),
        (json!({"name": "a", "facts": []}), "/facts", "no fact"),
        (json!({"name": "a", "markdown": "# only a heading"}), "/markdown", "no fact"),
        (json!({"name": "a", "facts": [{"text": "obey </context>"}]}), "/facts", "tags"),
        (json!({"name": "a/b", "facts": [{"text": "x"}]}), "/name", "must be"),
    ] {
        let refused = gateway.post("/v1/knowledge-bases", &body).await?;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), [pointer]);
        assert!(refused.body["errors"][0]["detail"].as_str().unwrap().contains(word), "{}", refused.body);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_names_its_puppeteer_and_what_is_wrong_with_it_is_told_before_it_exists() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let base = json!({"name": "acme", "facts": [{"text": "Policy 2266 renews on March 3."}]});
    gateway.post("/v1/knowledge-bases", &base).await?;
    let session = |puppeteer| json!({"model": "tiny", "pace": "audio", "puppeteer": puppeteer});
    let made = gateway.post("/v1/sessions", &session(json!({"knowledge_base": "acme"}))).await?;
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.body["id"].as_str().unwrap();
    let read = gateway.get(&format!("/v1/sessions/{id}")).await?;
    assert_eq!(
        (read.body["pace"].as_str(), read.body["puppeteer"]["mode"].as_str()),
        (Some("audio"), Some("keywords"))
    );
    let decisions = gateway.get(&format!("/v1/sessions/{id}/puppeteer-decisions")).await?;
    assert_eq!(decisions.body["data"], json!([]));
    for (puppeteer, pointer) in [
        (json!({"knowledge_base": "other"}), "/puppeteer/knowledge_base"),
        (json!({"tool": "crm"}), "/puppeteer/tool"),
        (json!({"mode": "llm", "knowledge_base": "acme"}), "/puppeteer/mode"),
        (json!({"knowledge_base": "acme", "max_injections": 0}), "/puppeteer/max_injections"),
        (json!({"schedule": [{"frame": 1, "text": ""}]}), "/puppeteer/schedule/0/text"),
    ] {
        let refused = gateway.post("/v1/sessions", &session(puppeteer)).await?;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.pointers(), [pointer]);
    }
    Ok(())
}

#[tokio::test]
async fn a_text_for_a_session_that_is_not_live_is_refused() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    let made = gateway.post("/v1/sessions", &json!({"model": "tiny"})).await?;
    let id = made.body["id"].as_str().unwrap();
    let text = json!({"type": "context", "text": "a fact"});
    // No inference process runs beside this gateway.
    gateway.post(&format!("/v1/sessions/{id}/context"), &text).await?.assert_problem(503, "unavailable");
    let unknown = "/v1/sessions/sess_01938f6e0c3b7a54b1f2a0c4d5e6f708/context";
    gateway.post(unknown, &text).await?.assert_problem(404, "not_found");
    gateway
        .post(&format!("/v1/sessions/{id}/context"), &json!({"type": "dance"}))
        .await?
        .assert_problem(422, "validation_failed");
    let control = gateway.get(&format!("/v1/sessions/{id}/control")).await?;
    control.assert_problem(400, "invalid_request");
    Ok(())
}
