//! SIGKILL to each of the seven services at a random moment of a pipeline that goes through all of them.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use sqlx::PgPool;
use testkit::{Stack, wait_until};

use crate::api::{ALL, Api, builder, text};

const DEADLINE: Duration = Duration::from_secs(240);
const DIALOGUES: i64 = 6;

/// The job kind that shows a service at work, and about how many milliseconds that work takes.
fn work(service: &str) -> (&'static str, u64) {
    match service {
        "datagen" => ("generate", 100),
        "tts" => ("render", 3_000),
        "align" => ("align", 2_000),
        "dataset" => ("assemble", 800),
        "trainer" => ("train", 6_000),
        _ => ("evaluate", 3_000),
    }
}

/// Waits until the service has work, lets a random time pass, kills it and starts it again.
async fn strike(stack: &mut Stack, pool: &PgPool, rng: &mut ChaCha8Rng, service: &str) {
    let (kind, millis) = work(service);
    wait_until(&format!("work for {service}"), DEADLINE, async || {
        let busy: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM jobs WHERE kind = $1 AND started_at IS NOT NULL)")
                .bind(kind)
                .fetch_one(pool)
                .await
                .unwrap();
        busy
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..millis))).await;
    stack.kill(service).unwrap();
    stack.restart(service).await.unwrap();
}

#[tokio::test]
async fn each_service_killed_once_at_a_random_moment_loses_nothing_and_repeats_nothing() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut stack = builder(&ALL).start().await.unwrap();
    let api = Api::new(&stack);
    let pool = PgPool::connect(stack.database_url()).await.unwrap();
    api.register_tiny(&stack).await;

    let order = json!({ "name": "chaos", "domain": "pharma_adherence", "dialogues": DIALOGUES, "shard_size": 2,
        "eval_fraction": 0.2, "seed": seed % 1000 });
    let dataset = text(&api.post("/v1/datasets", order).await, "id");
    for service in ["datagen", "tts", "align", "dataset"] {
        strike(&mut stack, &pool, &mut rng, service).await;
    }
    api.succeeded(&format!("/v1/datasets/{dataset}"), DEADLINE).await;

    let spec = json!({ "max_steps": 8, "batch_size": 1, "num_microbatches": 1, "duration_sec": 60.0, "ckpt_freq": 2, "eval_freq": 0,
        "optim": { "lr": 0.002 }, "lora": { "rank": 4 } });
    let run = api
        .post(
            "/v1/runs",
            json!({ "name": "chaos", "dataset_id": dataset, "base_model": "tiny", "spec": spec,
                "acknowledge": true }),
        )
        .await;
    strike(&mut stack, &pool, &mut rng, "trainer").await;
    api.succeeded(&format!("/v1/runs/{}", text(&run, "id")), DEADLINE).await;

    let mut evaluations = Vec::new();
    for model in ["tiny", "chaos"] {
        let order = json!({ "name": format!("chaos-{model}"), "dataset_id": dataset, "model": model,
            "spec": { "max_dialogues": 1, "max_seconds": 20.0 } });
        evaluations.push(text(&api.post("/v1/evaluations", order).await, "id"));
    }
    strike(&mut stack, &pool, &mut rng, "inference").await;
    strike(&mut stack, &pool, &mut rng, "evaluation").await;
    for id in &evaluations {
        api.succeeded(&format!("/v1/evaluations/{id}"), DEADLINE).await;
    }
    let order = json!({ "name": "chaos", "baseline_id": evaluations[0], "candidate_id": evaluations[1] });
    let comparison = text(&api.post("/v1/comparisons", order).await, "id");
    api.succeeded(&format!("/v1/comparisons/{comparison}"), DEADLINE).await;
    everything_happened_once(&pool).await;
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn everything_happened_once(pool: &PgPool) {
    let interrupted = count(pool, "SELECT count(*) FROM jobs WHERE attempt > 1").await;
    println!("{interrupted} jobs were interrupted and done again");
    let jobs = count(pool, "SELECT count(*) FROM jobs").await;
    assert_eq!(jobs, 3 * 3 + 1 + 1 + 2 + 1, "three shards through three stages, then one of each");
    for (what, sql, expected) in [
        ("jobs that succeeded", "SELECT count(*) FROM jobs WHERE state = 'succeeded'", jobs),
        ("success events", "SELECT count(*) FROM job_events WHERE kind = 'job.succeeded'", jobs),
        ("jobs beyond their tries", "SELECT count(*) FROM jobs WHERE attempt > max_attempts", 0),
        ("dialogues", "SELECT count(*) FROM dialogues", DIALOGUES),
        (
            "finished dialogues",
            "SELECT count(*) FROM dialogues WHERE render IS NOT NULL AND alignment IS NOT NULL AND split IS NOT NULL",
            DIALOGUES,
        ),
        ("merged models", "SELECT count(*) FROM models WHERE kind = 'merged'", 1),
        ("scores", "SELECT count(*) FROM evaluation_scores", 2),
        ("loss points", "SELECT count(*) FROM run_metrics WHERE name = 'train/loss'", 8),
        (
            "gaps in histories",
            "SELECT count(*) FROM jobs j WHERE last_seq <> (SELECT count(*) FROM job_events e WHERE e.job_id = j.id)",
            0,
        ),
    ] {
        assert_eq!(count(pool, sql).await, expected, "{what}");
    }
    wait_until("an empty outbox", Duration::from_secs(20), async || {
        count(pool, "SELECT count(*) FROM outbox").await == 0
    })
    .await
    .unwrap();
}
