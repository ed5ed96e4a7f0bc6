//! Retries, limits, breaker and budget around calls.

use std::time::{Duration, Instant};

use llm::limiter::Limiter;
use llm::price::Price;
use llm::retry::RetryPolicy;
use llm::{Budget, Client, ErrorKind, ProviderKind};
use serde_json::json;

use crate::wire::{Reply, Wire, messages_stream};
use crate::{SHORT, provider, request};

const LONG: Duration = Duration::from_secs(20);

fn client(url: &str, tries: usize) -> Client {
    let retries = RetryPolicy { tries, base: SHORT, cap: SHORT, total: LONG };
    Client::around(provider(ProviderKind::Anthropic, url), Limiter::new(8, 8), retries)
}

fn error(status: u16) -> Reply {
    Reply::json(status, &json!({ "type": "error", "error": { "type": "x", "message": "y" } }))
}

#[tokio::test]
async fn passing_failures_are_tried_again_and_lasting_ones_are_not() {
    for (status, calls) in
        [(500, 4), (529, 4), (429, 4), (504, 4), (409, 4), (400, 1), (401, 1), (404, 1), (413, 1)]
    {
        let wire = Wire::start(move |_, _| error(status)).await;
        client(&wire.url, 4).complete(&request(true), LONG).await.expect_err("fails");
        assert_eq!(wire.count(), calls, "{status}");
    }
    let wire = Wire::start(|_, before| match before {
        0 => error(500),
        1 => Reply { cut: true, ..Reply::events(messages_stream()[..4].to_vec()) },
        2 => error(429).header("retry-after", "0.3"),
        _ => Reply::events(messages_stream()),
    })
    .await;
    let started = Instant::now();
    let answer = client(&wire.url, 8).complete(&request(true), LONG).await.expect("answers at last");
    assert_eq!((wire.count(), answer.usage.output_tokens), (4, 42));
    assert!(started.elapsed() >= Duration::from_millis(300), "retry-after is a lower bound");
}

#[tokio::test]
async fn after_five_failures_in_a_row_nobody_asks_until_the_rest_is_over() {
    let wire =
        Wire::start(|_, before| if before < 5 { error(529) } else { Reply::events(messages_stream()) }).await;
    let client = client(&wire.url, 5).with_breaker(5, Duration::from_millis(500));
    assert_eq!(client.complete(&request(true), LONG).await.expect_err("fails").kind, ErrorKind::Overloaded);
    assert_eq!(
        client.once(&request(true), &mut |_| {}).await.expect_err("rests").kind,
        ErrorKind::BreakerOpen
    );
    assert_eq!(wire.count(), 5, "nothing was sent");
    client.complete(&request(true), LONG).await.expect("waits for the end of the rest, then asks");
}

#[tokio::test]
async fn a_limit_that_is_used_up_is_waited_for_by_all_and_a_429_halves_the_calls_at_once() {
    let wire = Wire::start(|_, before| {
        if before == 0 {
            let reset = chrono::Utc::now() + chrono::Duration::milliseconds(600);
            return Reply::events(messages_stream())
                .header("anthropic-ratelimit-input-tokens-remaining", "0")
                .header("anthropic-ratelimit-input-tokens-reset", &reset.to_rfc3339());
        }
        if before == 1 { error(429) } else { Reply::events(messages_stream()) }
    })
    .await;
    let client = client(&wire.url, 3);
    client.complete(&request(true), LONG).await.expect("answers");
    let started = Instant::now();
    client.complete(&request(true), LONG).await.expect("answers");
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
    assert_eq!(client.limiter().limit(), 4);
}

#[tokio::test]
async fn the_budget_stops_before_the_call_and_settles_what_the_answer_says() {
    let wire = Wire::start(|_, _| Reply::events(messages_stream())).await;
    let price = Price { output: 1_000_000, ..Price::free() };
    // Worst case of a call: 200 tokens written; what it takes: 42.
    let budget = Budget::new(300);
    let client = client(&wire.url, 2).with_budget(budget.clone(), price);
    for spent in [42, 84, 126] {
        let ended = client.complete(&request(true), LONG).await;
        if spent == 126 {
            assert_eq!(ended.expect("fits").usage.output_tokens, 42);
        }
        assert_eq!(budget.spent(), spent);
    }
    let error = client.complete(&request(true), LONG).await.expect_err("126 + 200 is more than 300");
    assert_eq!((error.kind, wire.count()), (ErrorKind::BudgetExceeded, 3));
}

#[tokio::test]
async fn a_short_call_ends_at_its_deadline() {
    let slow = Reply { pause: Duration::from_millis(200), ..Reply::events(messages_stream()) };
    let wire = Wire::start(move |_, _| slow.clone()).await;
    let started = Instant::now();
    let ended = client(&wire.url, 3).complete(&request(true), Duration::from_millis(300)).await;
    assert_eq!(ended.expect_err("is late").kind, ErrorKind::Timeout);
    assert!(started.elapsed() < Duration::from_secs(1));
}
