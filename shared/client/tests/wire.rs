//! What the client really sends and how it takes answers, against a small server in this process.

mod server;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use client::views::NewSession;
use client::{Client, ClientError, ExitCode, RetryPolicy, WaitOptions};
use domain::JobId;
use domain::session::SessionPace;
use server::{Answer, Server};

fn client(server: &Server) -> Result<Client> {
    let retry =
        RetryPolicy { attempts: 4, first: Duration::from_millis(10), longest: Duration::from_millis(2_000) };
    Ok(Client::new(&server.url(), "ppx_test")?.with_retry(retry))
}

fn job(id: JobId, state: &str) -> Value {
    json!({ "id": id, "object": "job", "kind": "train", "state": state, "created_at": "2026-03-01T10:00:00Z",
            "a_field_of_the_future": { "x": 1 } })
}

fn event(id: JobId, seq: i64, kind: &str) -> String {
    let event =
        json!({ "job_id": id, "seq": seq, "type": kind, "data": {}, "created_at": "2026-03-01T10:00:00Z" });
    format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
}

fn quick() -> WaitOptions {
    WaitOptions {
        timeout: Duration::from_secs(10),
        poll: Duration::from_millis(10),
        ..WaitOptions::default()
    }
}

#[tokio::test]
async fn a_post_is_sent_again_with_the_same_key_until_it_is_answered() -> Result<()> {
    let server = Server::start(vec![
        Answer::status(503)
            .header("retry-after", "1")
            .json(&json!({ "code": "unavailable", "detail": "down" })),
        Answer::hang_up(),
        Answer::status(201).json(&job(JobId::generate(), "queued")),
    ])
    .await?;
    let begun = Instant::now();
    let _: Value = client(&server)?.post("/v1/things", &json!({ "name": "a" })).await?;
    assert!(begun.elapsed() >= Duration::from_millis(900), "Retry-After was not waited for");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let keys: Vec<_> = requests.iter().map(|r| r.header("idempotency-key")).collect();
    assert!(keys[0].is_some() && keys.iter().all(|key| key == &keys[0]), "{keys:?}");
    assert!(requests.iter().all(|r| r.header("authorization").as_deref() == Some("Bearer ppx_test")));
    assert!(requests.iter().all(|r| r.body == requests[0].body && !r.body.is_empty()));
    let _: Result<Value, _> = client(&server)?.post("/v1/things", &json!({})).await;
    assert_ne!(server.requests().last().context("a request")?.header("idempotency-key"), keys[0]);
    Ok(())
}

#[tokio::test]
async fn a_session_whose_ticket_was_told_to_nobody_is_opened_anew() -> Result<()> {
    let session = |ticket: Option<&str>| {
        json!({ "id": "sess_01938f6e0c3b7a54b1f2a0c4d5e6f708", "state": "created", "ticket": ticket,
                "model_id": "mdl_01938f6e0c3b7a54b1f2a0c4d5e6f708", "created_at": "2026-03-01T10:00:00Z" })
    };
    let server = Server::start(vec![
        Answer::hang_up(),
        Answer::status(201).json(&session(None)),
        Answer::status(201).json(&session(Some("abc"))),
    ])
    .await?;
    let new = NewSession {
        model: "tiny".into(),
        voice: None,
        text_prompt: None,
        sampling: None,
        pace: SessionPace::Audio,
    };
    let client = client(&server)?;
    let opened = client.create_session(&new).await?;
    let socket = client.socket_url(&opened)?;
    assert!(
        socket.as_str().starts_with("ws://") && socket.as_str().ends_with("/api/chat?ticket=abc"),
        "{socket}"
    );
    let keys: Vec<_> = server.requests().iter().map(|r| r.header("idempotency-key")).collect();
    assert!(keys[0] == keys[1] && keys[1] != keys[2], "{keys:?}");
    assert!(!serde_json::to_string(&opened)?.contains("abc"), "a shown session holds no ticket");
    Ok(())
}

#[tokio::test]
async fn refusals_become_problems_without_another_try() -> Result<()> {
    let problem = json!({ "type": "about:blank", "title": "No such resource", "status": 404, "detail": "no job x",
                          "code": "not_found", "retryable": false });
    let server = Server::start(vec![Answer::status(404).json(&problem)]).await?;
    let error = client(&server)?.job(JobId::generate()).await.expect_err("a refusal");
    assert_eq!((error.code(), error.exit_code()), (Some("not_found"), ExitCode::NotFound));
    assert!(error.to_string().contains("no job x"), "{error}");
    assert_eq!(server.requests().len(), 1);
    Ok(())
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_refusal_is_reported() -> Result<()> {
    let busy = || Answer::status(429).json(&json!({ "code": "rate_limited", "title": "Too many requests" }));
    let server = Server::start((0..9).map(|_| busy()).collect()).await?;
    let error = client(&server)?.voices().await.expect_err("a refusal");
    assert_eq!((error.code(), server.requests().len()), (Some("rate_limited"), 4));
    drop(server);
    let nowhere = Client::new("http://127.0.0.1:9", "")?
        .with_retry(RetryPolicy { attempts: 1, ..RetryPolicy::default() });
    let error = nowhere.voices().await.expect_err("nobody listens");
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.exit_code() == ExitCode::Server);
    Ok(())
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_after_the_last_event_and_no_event_is_shown_twice() -> Result<()> {
    let id = JobId::generate();
    let first = format!(": hello\n\n{}{}", event(id, 1, "job.queued"), event(id, 2, "job.started"));
    let second = format!(
        "{}{}event: done\ndata: {{}}\n\n",
        event(id, 2, "job.started"),
        event(id, 3, "job.succeeded")
    );
    let server = Server::start(vec![
        Answer::stream(&first),
        Answer::stream(&second),
        Answer::status(200).json(&job(id, "succeeded")),
    ])
    .await?;
    let mut seen = Vec::new();
    client(&server)?.wait_job(id, &quick(), |event| seen.push(event.seq)).await?;
    assert_eq!(seen, [1, 2, 3]);
    let requests = server.requests();
    assert_eq!(requests[0].header("last-event-id"), None);
    assert_eq!(requests[1].header("last-event-id").as_deref(), Some("2"));
    Ok(())
}

#[tokio::test]
async fn without_streams_the_job_is_asked_for_and_its_failure_is_told() -> Result<()> {
    let id = JobId::generate();
    let mut failed = job(id, "failed");
    failed["error"] = json!({ "code": "a_code_of_the_future", "detail": "loss is not finite" });
    let mut answers: Vec<Answer> =
        (0..3).map(|_| Answer::status(503).json(&json!({ "code": "unavailable" }))).collect();
    answers.push(Answer::status(200).json(&job(id, "running")));
    answers.push(Answer::status(200).json(&failed));
    let server = Server::start(answers).await?;
    let error = client(&server)?.wait_job(id, &quick(), |_| {}).await.expect_err("a failed job");
    assert_eq!((error.code(), error.exit_code()), (Some("a_code_of_the_future"), ExitCode::JobFailed));
    Ok(())
}

#[tokio::test]
async fn waiting_ends_with_the_time_given() -> Result<()> {
    let id = JobId::generate();
    let mut answers = vec![Answer::stream("event: done\n\n")];
    answers.extend((0..200).map(|_| Answer::status(200).json(&job(id, "running"))));
    let server = Server::start(answers).await?;
    let options = WaitOptions { timeout: Duration::from_millis(150), ..quick() };
    let error = client(&server)?.wait_job(id, &options, |_| {}).await.expect_err("too long");
    assert_eq!(error.exit_code(), ExitCode::Timeout);
    Ok(())
}
