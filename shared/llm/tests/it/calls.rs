//! One call: answers, streams, and every way to fail.

use std::time::Duration;

use llm::{Action, Delta, ErrorKind, ProviderKind, StopReason};
use serde_json::json;

use crate::wire::{Reply, Wire, chunks_stream, messages_stream};
use crate::{KEY, KINDS, provider, request};

fn stream(kind: ProviderKind) -> Vec<String> {
    if kind == ProviderKind::Anthropic { messages_stream() } else { chunks_stream() }
}

#[tokio::test]
async fn a_streamed_answer_is_whole_whatever_pieces_it_comes_in() {
    for kind in KINDS {
        let whole: String = stream(kind).concat();
        let bytewise: Vec<String> = whole.chars().map(String::from).collect();
        for parts in [stream(kind), vec![whole], bytewise] {
            let reply = Reply::events(parts).header("request-id", "req_7");
            let wire = Wire::start(move |_, _| reply.clone()).await;
            let (mut text, mut tool) = (String::new(), String::new());
            let answer = provider(kind, &wire.url)
                .chat(&request(true), &mut |delta| match delta {
                    Delta::Text(part) => text.push_str(&part),
                    Delta::Tool(part) => tool.push_str(&part),
                })
                .await
                .expect("answers");
            assert_eq!(answer.text, "Let me see — ja.");
            assert_eq!((text, tool.as_str()), (answer.text, "{\"a\": [1, 2]}"));
            assert_eq!(answer.tool, Some(json!({ "a": [1, 2] })));
            assert_eq!(answer.stop, StopReason::ToolUse);
            assert_eq!((answer.usage.output_tokens, answer.usage.cache_read_tokens), (42, 9));
            assert_eq!((answer.model.as_str(), answer.request_id.as_deref()), ("m-1", Some("req_7")));
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_after_any_event_is_no_answer() {
    for kind in KINDS {
        let events = stream(kind);
        for kept in 0..events.len() {
            for cut in [true, false] {
                let mut reply = Reply::events(events[..kept].to_vec());
                // Also in the middle of the next event.
                reply.parts.push(events[kept].chars().take(events[kept].chars().count() / 2).collect());
                reply.cut = cut;
                let wire = Wire::start(move |_, _| reply.clone()).await;
                let ended = provider(kind, &wire.url).chat(&request(true), &mut |_| {}).await;
                let error = ended.expect_err("was cut");
                assert_eq!(error.kind, ErrorKind::StreamCut, "{kind:?} {kept} {cut}: {error}");
                assert!(error.uncertain && error.action() == Action::Retry);
            }
        }
    }
}

#[tokio::test]
async fn every_status_of_the_table_has_its_kind_and_no_error_holds_the_key() {
    use ErrorKind as K;
    let table = [
        (400, "invalid_request_error", "tools.0: extra field", K::InvalidRequest),
        (400, "invalid_request_error", "prompt is too long: 250000 tokens", K::ContextTooLong),
        (400, "context_length_exceeded", "This model's maximum context length is 8192", K::ContextTooLong),
        (400, "invalid_request_error", "You have reached your specified API usage limits", K::SpendLimit),
        (400, "content_filter", "The response was filtered", K::Refused),
        (401, "authentication_error", "invalid x-api-key", K::Auth),
        (402, "billing_error", "payment", K::Auth),
        (403, "permission_error", "not allowed", K::Auth),
        (404, "not_found_error", "model: m-1", K::NotFound),
        (409, "conflict_error", "conflict", K::Server),
        (413, "request_too_large", "too large", K::InvalidRequest),
        (429, "rate_limit_error", "slow down", K::RateLimited),
        (429, "insufficient_quota", "You exceeded your current quota", K::SpendLimit),
        (500, "api_error", "internal", K::Server),
        (503, "overloaded", "no capacity", K::Overloaded),
        (504, "timeout_error", "timed out", K::Timeout),
        (529, "overloaded_error", "Overloaded", K::Overloaded),
    ];
    for kind in KINDS {
        for (status, code, message, expected) in table {
            let body = json!({ "type": "error", "error": { "type": code, "message": message }, "request_id": "req_1" });
            let reply = Reply::json(status, &body).header("retry-after", "2.5");
            let wire = Wire::start(move |_, _| reply.clone()).await;
            let ended = provider(kind, &wire.url).chat(&request(true), &mut |_| {}).await;
            let error = ended.expect_err("fails");
            assert_eq!((error.kind, error.status), (expected, Some(status)), "{error}");
            assert_eq!(error.retry_after, Some(Duration::from_millis(2500)));
            assert_eq!(error.request_id.as_deref(), Some("req_1"));
            assert!(!format!("{error} {error:?}").contains(KEY));
            let seen = wire.seen.lock().expect("not poisoned").first().expect("came").clone();
            assert!(seen.head.contains(KEY), "the key is sent");
        }
    }
}

#[tokio::test]
async fn an_error_within_a_stream_counts_as_its_status_would() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    for kept in 0..messages_stream().len() {
        let mut parts = messages_stream()[..kept].to_vec();
        parts.push(error.into());
        let wire = Wire::start(move |_, _| Reply::events(parts.clone())).await;
        let ended = provider(ProviderKind::Anthropic, &wire.url).chat(&request(true), &mut |_| {}).await;
        assert_eq!(ended.expect_err("fails").kind, ErrorKind::Overloaded);
    }
    let error = "data: {\"error\":{\"code\":429,\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\n\n";
    let wire = Wire::start(move |_, _| Reply::events(vec![chunks_stream()[0].clone(), error.into()])).await;
    let ended = provider(ProviderKind::Openai, &wire.url).chat(&request(true), &mut |_| {}).await;
    assert_eq!(ended.expect_err("fails").kind, ErrorKind::RateLimited);
}

#[tokio::test]
async fn garbage_is_malformed_and_a_silent_server_times_out() {
    for kind in KINDS {
        let garbage = Reply::events(vec!["event: message_start\ndata: {\"secret words\n\n".into()]);
        let wire = Wire::start(move |_, _| garbage.clone()).await;
        let error =
            provider(kind, &wire.url).chat(&request(true), &mut |_| {}).await.expect_err("is garbage");
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(!error.to_string().contains("secret words"), "{error}");
        let wire = Wire::start(|_, _| Reply::json(200, &json!(["no message"]))).await;
        let error = provider(kind, &wire.url).chat(&request(false), &mut |_| {}).await.expect_err("is none");
        assert_eq!(error.kind, ErrorKind::Malformed);
        // Stands still for longer than the idle time (1 s), then drips for longer than the whole call (5 s).
        for pause in [Duration::from_secs(3), Duration::from_millis(700)] {
            let mut slow = Reply::events(stream(kind));
            slow.pause = pause;
            let wire = Wire::start(move |_, _| slow.clone()).await;
            let error =
                provider(kind, &wire.url).chat(&request(true), &mut |_| {}).await.expect_err("is slow");
            assert_eq!(error.kind, ErrorKind::Timeout, "{kind:?} {pause:?}");
        }
    }
}

#[tokio::test]
async fn requests_have_the_shape_that_each_api_documents() {
    for kind in KINDS {
        let wire = Wire::start(move |_, _| Reply::events(stream(kind))).await;
        provider(kind, &wire.url).chat(&request(true), &mut |_| {}).await.expect("answers");
        let seen = wire.seen.lock().expect("not poisoned")[0].clone();
        let head = seen.head.to_lowercase();
        assert_eq!(
            (seen.method.as_str(), &seen.body["max_tokens"], &seen.body["stream"]),
            ("POST", &json!(200), &json!(true))
        );
        if kind == ProviderKind::Anthropic {
            assert_eq!(seen.path, "/v1/messages");
            assert!(head.contains("anthropic-version: 2023-06-01") && head.contains("x-api-key: "));
            let system =
                json!([{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }]);
            assert_eq!(seen.body["system"], system);
            assert_eq!(seen.body["tool_choice"], json!({ "type": "tool", "name": "emit" }));
        } else {
            assert_eq!(seen.path, "/v1/chat/completions");
            assert!(head.contains("authorization: bearer "));
            assert_eq!(seen.body["messages"][0], json!({ "role": "system", "content": "Be brief." }));
            assert_eq!(seen.body["stream_options"], json!({ "include_usage": true }));
        }
    }
}
