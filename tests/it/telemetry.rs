//! One trace id from the HTTP request through the broker into the worker's lines.

use std::time::Duration;

use serde_json::json;
use testkit::wait_until;

use crate::api::{Api, builder};

#[tokio::test]
async fn the_trace_of_a_request_is_found_in_the_lines_of_the_gateway_and_of_the_worker() {
    let stack = builder(&["gateway", "datagen"]).start().await.unwrap();
    let api = Api::new(&stack);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let order = json!({ "name": "traced", "domain": "insurance_brokerage", "dialogues": 2 });
    api.post_traced("/v1/datasets", order, Some(&format!("00-{trace}-b7ad6b7169203331-01"))).await;
    wait_until("the worker's line", Duration::from_secs(30), async || {
        stack
            .log("datagen")
            .unwrap()
            .lines()
            .any(|line| line.contains(trace) && line.contains("job succeeded"))
    })
    .await
    .unwrap();
    assert!(stack.log("gateway").unwrap().contains(trace));
}
