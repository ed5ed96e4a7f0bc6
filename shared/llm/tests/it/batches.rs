//! Batches: results in any order, of every kind.

use futures::StreamExt;
use llm::batch::BatchResult;
use llm::{ErrorKind, ProviderKind};
use serde_json::json;

use crate::wire::{Reply, Wire};
use crate::{provider, request};

#[tokio::test]
async fn a_batch_is_handed_in_watched_and_read_in_whatever_order_its_results_come() {
    let lines = [
        json!({ "custom_id": "r3", "result": { "type": "expired" } }),
        json!({ "custom_id": "r1", "result": { "type": "errored", "error": { "type": "error", "error": { "type": "overloaded_error", "message": "full" } } } }),
        json!({ "custom_id": "r4", "result": { "type": "errored", "error": { "type": "invalid_request_error", "message": "no" } } }),
        json!({ "custom_id": "r0", "result": { "type": "succeeded", "message": { "model": "m-1", "stop_reason": "tool_use",
            "content": [{ "type": "tool_use", "input": { "a": 1 } }], "usage": { "input_tokens": 5, "output_tokens": 6 } } } }),
        json!({ "custom_id": "r2", "result": { "type": "canceled" } }),
    ];
    let text = lines.map(|l| l.to_string()).join("\n");
    let wire = Wire::start(move |seen, before| match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/v1/messages/batches/msgbatch_1/results") => Reply {
            parts: text.chars().collect::<Vec<_>>().chunks(7).map(|c| c.iter().collect()).collect(),
            ..Reply::json(200, &json!(null))
        },
        (_, "/v1/messages/batches" | "/v1/messages/batches/msgbatch_1") => {
            let status = if before < 2 { "in_progress" } else { "ended" };
            let counts = json!({ "processing": if before < 2 { 5 } else { 0 } });
            Reply::json(
                200,
                &json!({ "id": "msgbatch_1", "processing_status": status, "request_counts": counts }),
            )
        }
        _ => Reply::json(404, &json!({})),
    })
    .await;
    let provider = provider(ProviderKind::Anthropic, &wire.url);
    let api = provider.batches().expect("has batches");
    let requests: Vec<_> = (0..5).map(|i| (format!("r{i}"), request(false))).collect();
    let batch = api.submit(&requests).await.expect("is taken");
    assert_eq!(wire.seen.lock().expect("not poisoned")[0].body["requests"][4]["custom_id"], "r4");
    assert!(!batch.ended && !api.poll(&batch.id).await.expect("stands").ended);
    assert!(api.poll(&batch.id).await.expect("stands").ended);
    let mut results: Vec<_> =
        api.results(&batch.id).await.expect("are there").map(|r| r.expect("reads")).collect().await;
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let kinds: Vec<_> = results.iter().map(|(id, result)| (id.as_str(), result)).collect();
    assert!(
        matches!(kinds.as_slice(), [
            ("r0", BatchResult::Succeeded(answer)),
            ("r1", BatchResult::Errored(passing)),
            ("r2", BatchResult::Canceled),
            ("r3", BatchResult::Expired),
            ("r4", BatchResult::Errored(lasting)),
        ] if answer.tool == Some(json!({ "a": 1 })) && answer.usage.output_tokens == 6
            && passing.kind == ErrorKind::Overloaded && lasting.kind == ErrorKind::InvalidRequest),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn an_id_that_would_lead_elsewhere_and_a_damaged_line_are_refused() {
    let wire = Wire::start(|seen, _| match seen.method.as_str() {
        "POST" => Reply::json(200, &json!({ "id": "../../keys", "processing_status": "in_progress" })),
        _ => Reply { parts: vec!["{\"custom_id\": \"r0\", ".into()], ..Reply::json(200, &json!(null)) },
    })
    .await;
    let provider = provider(ProviderKind::Anthropic, &wire.url);
    let api = provider.batches().expect("has batches");
    let error = api.submit(&[("r0".into(), request(false))]).await.expect_err("is no id");
    assert_eq!(error.kind, ErrorKind::Malformed);
    let mut results = api.results("b").await.expect("starts");
    assert_eq!(results.next().await.expect("a line").expect_err("is damaged").kind, ErrorKind::Malformed);
}
