//! The broker may be killed soon after its queues were declared: Postgres knows what is to be done.

use std::time::Duration;

use serde_json::json;
use sqlx::PgPool;
use testkit::{Broker, wait_until};

use crate::api::{Api, builder, text};

const JOBS: i64 = 20;

#[tokio::test]
async fn jobs_that_wait_when_the_broker_is_killed_a_second_after_the_first_declaration_all_complete() {
    let mut broker = Broker::start().await.unwrap();
    broker.kill().await.unwrap();
    // The gateway accepts work without a broker; no worker runs yet.
    let mut stack = builder(&["gateway", "datagen"]).amqp_url(broker.url()).start().await.unwrap();
    stack.kill("datagen").unwrap();
    let api = Api::new(&stack);
    let order =
        json!({ "name": "waiting", "domain": "pharma_adherence", "dialogues": JOBS, "shard_size": 1 });
    let dataset = text(&api.post("/v1/datasets", order).await, "id");
    let pool = PgPool::connect(stack.database_url()).await.unwrap();

    broker.restart().await.unwrap();
    // The outbox drains as soon as the queues are declared for the first time.
    wait_until("the doorbells at the broker", Duration::from_secs(30), async || {
        let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&pool).await.unwrap();
        waiting == 0
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting: i64 =
        sqlx::query_scalar("SELECT count(*) FROM jobs WHERE kind = 'generate' AND state = 'queued'")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(waiting, JOBS);
    broker.kill().await.unwrap();
    broker.restart().await.unwrap();

    stack.restart("datagen").await.unwrap();
    wait_until("all jobs done", Duration::from_secs(90), async || {
        let jobs =
            api.get(&format!("/v1/jobs?kind=generate&state=succeeded&subject={dataset}&limit=100")).await;
        jobs["data"].as_array().unwrap().len() == usize::try_from(JOBS).unwrap()
    })
    .await
    .unwrap();
    let completions: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM job_events e JOIN jobs j ON j.id = e.job_id WHERE j.kind = 'generate' AND e.kind = 'job.succeeded'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(completions, JOBS);
}
