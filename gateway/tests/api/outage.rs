//! Dependencies that are away: told as such, in time, and never as our failure.

use std::time::{Duration, Instant};

use anyhow::Result;
use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Gateway};

#[tokio::test]
async fn without_a_database_every_answer_is_503_with_retry_after() -> Result<()> {
    let port = testkit::free_port()?;
    let url = format!("postgres://nobody@127.0.0.1:{port}/nothing");
    let more = [
        ("PPX__DATABASE__URL", url.as_str()),
        ("PPX__AUTH__BOOTSTRAP_KEY", ""),
        ("PPX__AUTH__ANONYMOUS_CHAT", "true"),
    ];
    let gateway = Gateway::start_with(&more).await?;
    for path in ["/v1/jobs", "/v1/datasets", "/health/ready"] {
        let started = Instant::now();
        let answer = gateway.get(path).await?;
        answer.assert_problem(503, "unavailable");
        assert!(answer.header("retry-after").parse::<u64>()? >= 1, "{path}");
        assert!(answer.body["retryable"] == true && !answer.text.contains("postgres"), "{}", answer.text);
        assert!(started.elapsed() < Duration::from_secs(5), "{path} took {:?}", started.elapsed());
    }
    let request = gateway.request(Method::POST, "/v1/datasets").json(&json!({}));
    Answer::read(request.send().await?).await?.assert_problem(503, "unavailable");
    assert_eq!(gateway.get("/health/live").await?.status, 200);
    assert_eq!(gateway.get("/openapi.json").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn without_redis_and_broker_requests_work_and_readiness_says_degraded() -> Result<()> {
    let port = testkit::free_port()?;
    let url = format!("redis://127.0.0.1:{port}/0");
    let gateway = Gateway::start_with(&[("PPX__REDIS__URL", &url)]).await?;
    let ready = gateway.get("/health/ready").await?;
    assert_eq!((ready.status, ready.body["status"].as_str()), (200, Some("degraded")), "{}", ready.text);
    assert_eq!(ready.body["redis"], "away");
    let body = json!({"name": "d", "domain": "insurance_brokerage", "dialogues": 2});
    assert_eq!(gateway.post("/v1/datasets", &body).await?.status, 201);
    Ok(())
}
