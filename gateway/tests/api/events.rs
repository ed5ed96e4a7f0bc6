//! The history of a job: as a list, and live.

use std::time::Duration;

use anyhow::{Context, Result};
use domain::JobId;
use domain::job::{JobKind, Progress};
use futures::StreamExt;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use store::leases::{self, Claim};

use crate::support::Gateway;

const LEASE: Duration = Duration::from_secs(60);

/// A claimed generate job.
async fn running_job(gateway: &Gateway) -> Result<(JobId, Claim)> {
    let body = json!({"name": "a", "domain": "insurance_brokerage", "dialogues": 2});
    gateway.post("/v1/datasets", &body).await?;
    let job = leases::claim_next(&gateway.store, JobKind::Generate, "test", LEASE).await?.context("a job")?;
    Ok((job.claim.job, job.claim))
}

async fn progress(gateway: &Gateway, claim: Claim, done: u64) -> Result<()> {
    Ok(leases::progress(&gateway.store, claim, &Progress { done, total: 9, unit: "dialogues".into() })
        .await?)
}

/// Reads whole events from a stream.
struct Reader {
    response: std::pin::Pin<Box<dyn futures::Stream<Item = reqwest::Result<bytes::Bytes>>>>,
    text: String,
}

impl Reader {
    fn new(response: Response) -> Self {
        Self { response: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// The next block, as its fields; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<(String, String)>>> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let fields =
                    block.lines().filter_map(|l| l.split_once(": ").map(|(k, v)| (k.into(), v.into())));
                let fields = fields.collect();
                self.text = rest.to_owned();
                return Ok(Some(fields));
            }
            let chunk = tokio::time::timeout(Duration::from_secs(10), self.response.next()).await?;
            match chunk {
                Some(bytes) => self.text.push_str(std::str::from_utf8(&bytes?)?),
                None => return Ok(None),
            }
        }
    }

    /// The next event: id and data.
    async fn event(&mut self) -> Result<(String, Value)> {
        loop {
            let fields = self.next().await?.context("the stream ended")?;
            let get = |name: &str| fields.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
            if let (Some(id), Some(data)) = (get("id"), get("data")) {
                return Ok((id, serde_json::from_str(&data)?));
            }
        }
    }
}

#[tokio::test]
async fn a_stream_resumes_without_loss_or_repetition_and_ends_with_done() -> Result<()> {
    let gateway = Gateway::start().await?;
    let (job, claim) = running_job(&gateway).await?;
    let path = format!("/v1/jobs/{job}/events");
    let open = async |last: Option<&str>| {
        let mut request = gateway.request(Method::GET, &path).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await?;
        anyhow::ensure!(response.status() == 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        anyhow::Ok(Reader::new(response))
    };
    let mut stream = open(None).await?;
    assert_eq!(stream.next().await?, Some(vec![("retry".into(), "2000".into())]));
    let mut seen = Vec::new();
    // queued, claimed
    for _ in 0..2 {
        seen.push(stream.event().await?);
    }
    progress(&gateway, claim, 1).await?;
    seen.push(stream.event().await?);
    let last = seen[2].0.clone();
    drop(stream);
    progress(&gateway, claim, 2).await?;
    let mut stream = open(Some(&last)).await?;
    seen.push(stream.event().await?);
    progress(&gateway, claim, 3).await?;
    seen.push(stream.event().await?);
    let dataset = gateway.get("/v1/datasets").await?.body["data"][0]["id"].as_str().unwrap().parse()?;
    let done = chassis::Completion::Generated { dataset, dialogues: vec![] };
    leases::finish(&gateway.store, claim, done).await?;
    seen.push(stream.event().await?);
    let ids: Vec<_> = seen.iter().map(|(id, _)| id.parse::<usize>().unwrap()).collect();
    assert_eq!(ids, (1..=seen.len()).collect::<Vec<_>>());
    assert_eq!(seen[5].1["type"], "job.succeeded");
    let end = stream.next().await?.context("done")?;
    assert_eq!(end[0], ("event".to_owned(), "done".to_owned()));
    assert_eq!(stream.next().await?, None, "the stream is over");
    // The list has the same objects.
    let list = gateway.get(&path).await?;
    let events: Vec<Value> = seen.into_iter().map(|(_, data)| data).collect();
    assert_eq!(list.body["data"], Value::Array(events));
    let rest = gateway.get(&format!("{path}?after_seq=4")).await?;
    assert_eq!(rest.body["data"].as_array().unwrap().len(), 2);
    // A client that was cut off between the last event and `done` hears `done` and nothing again.
    let mut resumed = open(Some(&ids.len().to_string())).await?;
    assert_eq!(resumed.next().await?, Some(vec![("retry".into(), "2000".into())]));
    assert_eq!(resumed.next().await?.context("done")?[0], ("event".to_owned(), "done".to_owned()));
    assert_eq!(resumed.next().await?, None);
    // A stream of a job that is over ends at once.
    let mut late = Reader::new(gateway.request(Method::GET, &format!("{path}?stream=true")).send().await?);
    while late.next().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn a_quiet_stream_sends_comments_and_ends_with_the_process() -> Result<()> {
    let mut gateway = Gateway::start().await?;
    let (job, _) = running_job(&gateway).await?;
    let path = format!("/v1/jobs/{job}/events?stream=true&after_seq=2");
    let mut stream = Reader::new(gateway.request(Method::GET, &path).send().await?);
    assert_eq!(stream.next().await?.map(|f| f[0].0.clone()), Some("retry".into()));
    assert_eq!(stream.next().await?, Some(vec![(String::new(), "still here".into())]));
    gateway.stop().await?;
    while stream.next().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn events_of_an_unknown_job_and_a_bad_resume_are_problems() -> Result<()> {
    let gateway = Gateway::start().await?;
    let path = "/v1/jobs/job_01938f6e0c3b7a54b1f2a0c4d5e6f708/events?stream=true";
    gateway.get(path).await?.assert_problem(404, "not_found");
    let (job, _) = running_job(&gateway).await?;
    let request = gateway.request(Method::GET, &format!("/v1/jobs/{job}/events?stream=true"));
    let answer = crate::support::Answer::read(request.header("last-event-id", "x").send().await?).await?;
    answer.assert_problem(400, "invalid_request");
    Ok(())
}
