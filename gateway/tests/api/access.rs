//! Keys: who may do what, how soon a revocation works, and that nothing usable is stored.

use anyhow::{Context, Result};
use gateway::auth::Scope;
use reqwest::Method;
use rest::contract::{Contract, Operation};
use serde_json::json;

use crate::support::{Answer, Gateway};

/// A path of the operation whose identifiers exist nowhere.
pub fn example_path(operation: &Operation) -> String {
    let noun = operation.path.split('/').nth(2).unwrap_or("");
    let prefix = match noun {
        "jobs" => "job",
        "runs" => "run",
        "datasets" => "ds",
        "dialogues" => "dlg",
        "sessions" => "sess",
        "evaluations" => "eval",
        "comparisons" => "cmp",
        "api-keys" => "key",
        _ => "mdl",
    };
    let id = format!("{prefix}_01938f6e0c3b7a54b1f2a0c4d5e6f708");
    operation.path.replace("{id}", &id).replace("{ticket}", "nobody-has-this")
}

async fn new_key(gateway: &Gateway, scope: Scope) -> Result<(String, String)> {
    let made = gateway.post("/v1/api-keys", &json!({"name": "k", "scopes": [scope.as_str()]})).await?;
    anyhow::ensure!(made.status == 201, "{made:?}");
    let text = |name: &str| made.body[name].as_str().map(str::to_owned).context("member");
    Ok((text("id")?, text("key")?))
}

#[tokio::test]
async fn each_operation_wants_its_scope_and_nothing_else() -> Result<()> {
    let gateway = Gateway::start_with(&[("PPX__AUTH__MAX_FAILURES_PER_MINUTE", "100000")]).await?;
    let contract = Contract::read(gateway::openapi::document());
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((*scope, new_key(&gateway, *scope).await?.1));
    }
    let unknown = gateway::auth::key::generate("test").text;
    for operation in contract.operations() {
        let call = async |key: Option<&str>| {
            let mut request = gateway.bare(operation.method.as_str().parse()?, &example_path(operation));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            if operation.method == actix_web::http::Method::POST {
                request = request.json(&json!({}));
            }
            anyhow::Ok(Answer::read(request.send().await?).await?)
        };
        let Some(needed) = operation.scope else { continue };
        let without = call(None).await?;
        without.assert_problem(401, "unauthenticated");
        assert!(without.header("www-authenticate").starts_with("Bearer"), "{}", operation.id);
        assert!(without.detail().contains("Authorization: Bearer ppx_"), "{}", without.text);
        call(Some(&unknown)).await?.assert_problem(401, "unauthenticated");
        call(Some("garbage")).await?.assert_problem(401, "unauthenticated");
        for (scope, key) in &keys {
            let answer = call(Some(key)).await?;
            if *scope == needed || *scope == Scope::Admin {
                assert!(
                    ![401, 403].contains(&answer.status) && answer.status < 500,
                    "{} {answer:?}",
                    operation.id
                );
            } else {
                answer.assert_problem(403, "forbidden");
                assert!(answer.detail().contains(needed.as_str()), "{}", answer.text);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_revoked_key_stops_working_at_once_and_in_other_gateways_within_five_seconds() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (id, key) = new_key(&gateway, Scope::JobsRead).await?;
    let (other_id, other) = new_key(&gateway, Scope::JobsRead).await?;
    let call = async |key: &str| {
        Answer::read(gateway.bare(Method::GET, "/v1/jobs").bearer_auth(key).send().await?).await
    };
    assert_eq!(call(&key).await?.status, 200);
    assert_eq!(call(&other).await?.status, 200);
    let revoked = gateway.request(Method::DELETE, &format!("/v1/api-keys/{id}")).send().await?;
    assert!(Answer::read(revoked).await?.body["revoked_at"].is_string());
    call(&key).await?.assert_problem(401, "unauthenticated");
    // As another process would: only the row changes.
    assert_eq!(call(&other).await?.status, 200);
    store::api_keys::revoke(&gateway.store, other_id.parse()?).await?;
    let gone = async || call(&other).await.is_ok_and(|a| a.status == 401);
    testkit::wait_until("the key stops working", std::time::Duration::from_secs(5), gone).await?;
    Ok(())
}

#[tokio::test]
async fn who_guesses_is_slowed_down_and_a_good_key_in_use_is_not() -> Result<()> {
    let gateway = Gateway::start().await?;
    assert_eq!(gateway.get("/v1/jobs").await?.status, 200);
    let guess = async || {
        let wrong = gateway::auth::key::generate("test").text;
        Answer::read(gateway.bare(Method::GET, "/v1/jobs").bearer_auth(wrong).send().await?).await
    };
    for _ in 0..10 {
        guess().await?.assert_problem(401, "unauthenticated");
    }
    let limited = guess().await?;
    limited.assert_problem(429, "rate_limited");
    let wait: u64 = limited.header("retry-after").parse()?;
    assert!((1..=60).contains(&wait));
    assert_eq!(gateway.get("/v1/jobs").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn the_database_holds_no_usable_secret() -> Result<()> {
    let gateway = Gateway::start().await?;
    let request = gateway.request(Method::POST, "/v1/api-keys").header("idempotency-key", "k");
    let made =
        Answer::read(request.json(&json!({"name": "k", "scopes": ["jobs:read"]})).send().await?).await?;
    let key = made.body["key"].as_str().context("key")?.to_owned();
    gateway.tiny_model("tiny").await?;
    let request = gateway.request(Method::POST, "/v1/sessions").header("idempotency-key", "k");
    let made = Answer::read(request.json(&json!({"model": "tiny"})).send().await?).await?;
    let ticket = made.body["ticket"].as_str().context("ticket")?.to_owned();
    assert_eq!(made.body["url"], format!("/api/chat?ticket={ticket}"));
    let listed = gateway.get("/v1/api-keys").await?.text + &gateway.get("/v1/sessions").await?.text;
    for table in ["api_keys", "sessions", "idempotency_keys"] {
        let rows = gateway.db.rows_as_text(table).await?;
        assert!(!rows.is_empty(), "{table}");
        for secret in [&key, &ticket, &gateway.key] {
            assert!(!rows.contains(secret.as_str()) && !listed.contains(secret.as_str()), "{table}");
        }
    }
    Ok(())
}
