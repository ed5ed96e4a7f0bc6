//! Every kind of refusal is one kind of answer.

use anyhow::Result;
use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Gateway};

#[tokio::test]
async fn paths_methods_ids_and_queries_that_do_not_exist_are_problems() -> Result<()> {
    let gateway = Gateway::start().await?;
    for path in [
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/jobs/",
        "//v1/jobs",
        "/v2/jobs",
        "/v1/%6Aobs",
        "/healthz",
        "/s//api/chat",
    ] {
        gateway.get(path).await?.assert_problem(404, "route_not_found");
    }
    for (method, path, allow) in [
        (Method::PUT, "/v1/datasets", "GET, POST"),
        (Method::DELETE, "/v1/jobs", "GET"),
        (Method::PATCH, "/v1/api-keys/key_x", "DELETE, GET"),
        (Method::OPTIONS, "/v1/runs", "GET, POST"),
        (Method::from_bytes(b"BREW")?, "/v1/runs", "GET, POST"),
    ] {
        let answer = Answer::read(gateway.request(method, path).send().await?).await?;
        answer.assert_problem(405, "method_not_allowed");
        let mut found: Vec<_> = answer.header("allow").split(", ").collect();
        found.sort_unstable();
        assert_eq!(found.join(", "), allow, "{path}");
    }
    for path in
        ["/v1/jobs/x", "/v1/jobs/run_01938f6e0c3b7a54b1f2a0c4d5e6f708", "/v1/runs/1", "/v1/datasets/ds_"]
    {
        gateway.get(path).await?.assert_problem(400, "invalid_id");
    }
    gateway.get("/v1/jobs/job_01938f6e0c3b7a54b1f2a0c4d5e6f708").await?.assert_problem(404, "not_found");
    for query in [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=-1",
        "order=up",
        "colour=red",
        "limit=1&limit=2",
        "kind=dance",
        "state=x",
    ] {
        let answer = gateway.get(&format!("/v1/jobs?{query}")).await?;
        answer.assert_problem(400, "invalid_request");
        let name = query.split('=').next().unwrap_or("");
        assert!(answer.detail().contains(name), "{query}: {}", answer.text);
    }
    for cursor in ["x", "run_01938f6e0c3b7a54b1f2a0c4d5e6f708", ""] {
        gateway.get(&format!("/v1/jobs?after={cursor}")).await?.assert_problem(400, "invalid_cursor");
    }
    gateway
        .get(&format!("/v1/jobs?subject={}", "x".repeat(9_000)))
        .await?
        .assert_problem(414, "uri_too_long");
    Ok(())
}

#[tokio::test]
async fn bodies_are_refused_with_the_place_of_the_fault() -> Result<()> {
    let gateway = Gateway::start().await?;
    let send = async |content_type: &str, body: String| {
        let request =
            gateway.request(Method::POST, "/v1/datasets").header("content-type", content_type).body(body);
        anyhow::Ok(Answer::read(request.send().await?).await?)
    };
    let json = "application/json";
    let broken = send(json, "{\n  \"name\": ".into()).await?;
    broken.assert_problem(400, "invalid_request");
    assert!(broken.detail().contains("line 2, column 10"), "{}", broken.text);
    for body in ["", "[", "nul", "\u{0}", "{\"a\":1}}"] {
        send(json, body.into()).await?.assert_problem(400, "invalid_request");
    }
    send(json, "[".repeat(40)).await?.assert_problem(400, "invalid_request");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        send(content_type, "{}".into()).await?.assert_problem(415, "unsupported_media_type");
    }
    let bare = gateway.request(Method::POST, "/v1/datasets").body("{}").send().await?;
    Answer::read(bare).await?.assert_problem(415, "unsupported_media_type");
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(2 << 20));
    send(json, large).await?.assert_problem(413, "payload_too_large");

    let cases = [
        (json!({"domain": "insurance_brokerage", "dialogues": 4}), "", "name"),
        (json!({"name": "a", "domain": "insurance_brokerage", "dialogues": "4"}), "/dialogues", "string"),
        (json!({"name": "a", "domain": "insurance_brokerage", "dialogues": -4}), "/dialogues", "-4"),
        (json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 4, "x/y": 1}), "/x~1y", "x/y"),
        (json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 1}), "/dialogues", "2 to 5000"),
        (json!({"name": "a", "domain": "gardening", "dialogues": 4}), "/domain", "insurance_brokerage"),
        (
            json!({"name": "../a", "domain": "insurance_brokerage", "dialogues": 4}),
            "/name",
            "letter or digit",
        ),
        (
            json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 5000, "shard_size": 1}),
            "/shard_size",
            "5000 shards",
        ),
        (json!([]), "", "struct CreateDataset"),
    ];
    for (body, pointer, detail) in cases {
        let answer = gateway.post("/v1/datasets", &body).await?;
        answer.assert_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), [pointer], "{body}: {}", answer.text);
        assert!(answer.detail().contains(detail), "{body}: {}", answer.text);
    }
    let all = json!({"name": "", "domain": "x", "dialogues": 1, "shard_size": 0, "eval_fraction": 2});
    let answer = gateway.post("/v1/datasets", &all).await?;
    assert_eq!(answer.pointers(), ["/name", "/dialogues", "/shard_size", "/eval_fraction", "/domain"]);
    let nested = json!({"name": "r", "dataset_id": "ds_01938f6e0c3b7a54b1f2a0c4d5e6f708", "base_model": "x", "spec": {"optim": {"lr": "fast"}}});
    assert_eq!(gateway.post("/v1/runs", &nested).await?.pointers(), ["/spec/optim/lr"]);
    Ok(())
}

#[tokio::test]
async fn trace_and_request_ids_come_back_and_reach_the_jobs() -> Result<()> {
    let gateway = Gateway::start().await?;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = gateway
        .request(Method::GET, "/v1/jobs/x")
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        .header("x-request-id", "0197b1f2-6e0c-7a54-b1f2-a0c4d5e6f708");
    let answer = Answer::read(request.send().await?).await?;
    assert_eq!(answer.body["instance"], trace);
    assert_eq!(answer.header("x-request-id"), "0197b1f2-6e0c-7a54-b1f2-a0c4d5e6f708");
    let request = gateway
        .request(Method::GET, "/v1/jobs")
        .header("x-request-id", "<script>")
        .header("traceparent", "junk");
    let answer = Answer::read(request.send().await?).await?;
    assert!(uuid::Uuid::parse_str(answer.header("x-request-id")).is_ok(), "{answer:?}");
    let body = json!({"name": "traced", "domain": "insurance_brokerage", "dialogues": 2});
    let request = gateway.request(Method::POST, "/v1/datasets").json(&body);
    request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).send().await?;
    let lease = std::time::Duration::from_secs(30);
    let job =
        store::leases::claim_next(&gateway.store, domain::job::JobKind::Generate, "test", lease).await?;
    let carried = job.and_then(|j| j.traceparent).unwrap_or_default();
    assert!(carried.contains(trace) && !carried.contains("00f067aa0ba902b7"), "{carried}");
    Ok(())
}

#[tokio::test]
async fn every_answer_carries_the_security_headers_and_the_page_loads_nothing_from_elsewhere() -> Result<()> {
    let gateway = Gateway::start().await?;
    for path in ["/v1/jobs", "/nothing", "/health/live", "/openapi.json", "/docs/", "/docs/index.html"] {
        let answer = gateway.get(path).await?;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{path}: {policy}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{path}");
    }
    let page = gateway.get("/docs/").await?;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("//unpkg") && !page.text.contains("https://"), "{}", page.text);
    let start = gateway.get("/docs/swagger-initializer.js").await?;
    assert!(
        start.text.contains("\"persistAuthorization\": true") && start.text.contains("/openapi.json"),
        "{}",
        start.text
    );
    assert_eq!(gateway.get("/docs").await?.header("location"), "/docs/");
    gateway.get("/docs/nothing.js").await?.assert_problem(404, "route_not_found");
    Ok(())
}
