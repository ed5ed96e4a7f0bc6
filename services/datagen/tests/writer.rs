//! The service writes with a model and is killed at random: nothing that was paid for is lost or paid for again.
#![expect(clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datagen::packs::Packs;
use datagen::sampler::Design;
use domain::dataset::DatasetSpec;
use domain::dialogue::{DialogueRecord, DialogueStatus};
use domain::job::{JobSpec, JobState, RowRange};
use domain::{DatasetId, JobId};
use serde_json::{Value, json};
use store::jobs::{self, NewJob};
use store::{Store, datasets, dialogues};
use testkit::Stack;
use wire::{Reply, Wire};

#[path = "../../../shared/llm/tests/it/wire.rs"]
#[allow(dead_code, reason = "shared with the tests of the clients")]
mod wire;

const ROWS: u32 = 500;
const SLOTS: usize = 8;
const DOMAIN: &str = "insurance_brokerage";

/// The input of the tool that says what a record says.
fn input(record: &DialogueRecord) -> Value {
    let line = |line: &str| {
        let (section, body) = line.split_once(": ").expect("is labelled");
        let facts = matches!(section, "KNOWN" | "UNKNOWN");
        let body = if facts { json!(body.split("; ").collect::<Vec<_>>()) } else { json!(body) };
        (section.to_owned(), body)
    };
    let brief: serde_json::Map<String, Value> = record.text_prompt.lines().map(line).collect();
    let turns: Vec<_> =
        record.turns.iter().map(|t| json!({ "speaker": t.speaker, "text": t.text })).collect();
    let injections: Vec<_> = record
        .context_injections
        .iter()
        .map(|i| json!({ "after_turn": i.after_turn, "text": i.text }))
        .collect();
    json!({ "brief": brief, "turns": turns, "injections": injections })
}

/// A streamed message whose tool has this input.
fn message(input: &Value) -> Reply {
    let text = input.to_string();
    let half = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut parts = wire::messages_stream();
    let delta = |json: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": json });
        format!(
            "event: content_block_delta\ndata: {}\n\n",
            json!({ "type": "content_block_delta", "index": 1, "delta": delta })
        )
    };
    parts[8] = delta(&text[..half]);
    parts[10] = delta(&text[half..]);
    Reply { pause: Duration::from_millis(6), ..Reply::events(parts) }
}

/// What the model answers to each first message; rows that read the same have the same answer.
fn answers() -> BTreeMap<String, Value> {
    let packs = Packs::open(Path::new("")).expect("opens");
    let pack = packs.get(DOMAIN, None).expect("is built in");
    let design = Design::new(pack, ROWS, 7).expect("designs");
    (0..ROWS)
        .map(|row| {
            let record = datagen::grammar::generate(pack, &design, row, 7).expect("generates");
            (drafting::prompts::row(pack, &record.seed), input(&record))
        })
        .collect()
}

async fn enqueue(store: &Store, dialogues: u32) -> anyhow::Result<(DatasetId, JobId)> {
    let (dataset, job) = (DatasetId::generate(), JobId::generate());
    let spec = DatasetSpec { domain: DOMAIN.into(), dialogues, seed: 7, ..DatasetSpec::default() };
    let mut tx = store.begin().await?;
    datasets::insert(&mut tx, dataset, "calls", &spec).await?;
    let spec = JobSpec::Generate { dataset_id: dataset, rows: RowRange { from: 0, to: dialogues } };
    jobs::enqueue(&mut tx, &NewJob { id: job, spec, needs: vec![], max_attempts: 9, traceparent: None })
        .await?;
    tx.commit().await?;
    Ok((dataset, job))
}

async fn stack(url: &str, budget: &str) -> anyhow::Result<Stack> {
    let writer = |key: &str| format!("PPX__DATAGEN__WRITER__{key}");
    Stack::builder()
        .services(&["datagen"])
        .env_all(&writer("MODEL"), "claude-sonnet-4-5")
        .env_all(&writer("MAX_COST_MICROUSD"), budget)
        .env_all(&writer("PROVIDER__BASE_URL"), url)
        .env_all(&writer("PROVIDER__API_KEY"), "sk-canary-9876543210")
        .env_all(&writer("PROVIDER__CONCURRENCY"), SLOTS.to_string())
        .env_all(&writer("PROVIDER__MAX_CONCURRENCY"), SLOTS.to_string())
        .env_all("PPX__WORKER__LEASE_SECONDS", "3")
        .env_all("PPX__WORKER__HEARTBEAT_SECONDS", "1")
        .env_all("PPX__WORKER__POLL_SECONDS", "1")
        .env_all("PPX__SWEEPER__INTERVAL_SECONDS", "1")
        .start()
        .await
}

async fn store_of(stack: &Stack) -> anyhow::Result<Store> {
    Ok(Store::open(&store::StoreOptions {
        url: stack.database_url().to_owned(),
        max_connections: 2,
        acquire_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(10),
    })?)
}

async fn wait(
    what: &str,
    seconds: u64,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = std::time::Instant::now() + Duration::from_secs(seconds);
    while !holds().await? {
        anyhow::ensure!(std::time::Instant::now() < deadline, "{what}: not within {seconds} s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_rows_survive_three_kills_and_no_answer_is_paid_for_again() -> anyhow::Result<()> {
    let known = Arc::new(answers());
    let asked: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let (answer, count) = (Arc::clone(&known), Arc::clone(&asked));
    let wire = Wire::start(move |seen, _| {
        let text = seen.body.pointer("/messages/0/content").and_then(Value::as_str).unwrap_or_default();
        *count.lock().expect("not poisoned").entry(text.to_owned()).or_default() += 1;
        message(&answer[text])
    })
    .await;
    let mut stack = stack(&wire.url, "1000000000").await?;
    let store = store_of(&stack).await?;
    let (dataset, job) = enqueue(&store, ROWS).await?;
    let noise = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.subsec_nanos() as usize;
    for kill in 0..3 {
        let moment = 60 + kill * 140 + (noise >> (kill * 7)) % 100;
        wait("the moment", 60, async || Ok(wire.count() >= moment)).await?;
        stack.kill("datagen")?;
        stack.restart("datagen").await?;
    }
    wait("the end of the job", 90, async || Ok(jobs::get(&store, job).await?.state == JobState::Succeeded))
        .await?;
    let written = dialogues::of_dataset(&store, dataset, None).await?;
    assert_eq!(written.iter().map(|d| d.row).collect::<Vec<_>>(), (0..ROWS).collect::<Vec<_>>());
    let paid = store::calls::paid(&store, dataset, RowRange { from: 0, to: ROWS }).await?;
    let rows: std::collections::BTreeSet<u32> = paid.iter().map(|call| call.row).collect();
    assert_eq!(rows.len(), paid.len(), "a row was paid for twice in the books");
    assert_eq!(paid.len(), ROWS as usize, "an answer was lost");
    let calls: u64 = asked.lock().expect("not poisoned").values().sum();
    assert!(
        calls <= u64::from(ROWS) + 3 * SLOTS as u64,
        "{calls} calls: more than one in flight for each slot"
    );
    let good = written.iter().filter(|d| d.status == DialogueStatus::Valid).count();
    assert!(good * 10 >= ROWS as usize * 9, "only {good} are good");
    assert!(written.iter().all(|d| d.record.cost_microusd > 0));
    assert!(!stack.log("datagen")?.contains("sk-canary"), "the key is in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_costs_too_much_does_not_begin_and_bad_answers_are_repaired() -> anyhow::Result<()> {
    let known = Arc::new(answers());
    let wire = Wire::start(move |seen, _| {
        let text = seen.body.pointer("/messages/0/content").and_then(Value::as_str).unwrap_or_default();
        let repaired = seen.body["messages"].as_array().is_some_and(|m| m.len() == 3);
        let mut input = known.values().next().expect("there is one").clone();
        if let Some(own) = known.get(text).filter(|_| repaired) {
            input = own.clone();
        } else {
            input["turns"] = json!([]);
        }
        message(&input)
    })
    .await;
    let dear = stack(&wire.url, "1000").await?;
    let store = store_of(&dear).await?;
    let (_, job) = enqueue(&store, 4).await?;
    wait("the refusal", 30, async || Ok(jobs::get(&store, job).await?.state == JobState::Failed)).await?;
    assert_eq!(wire.count(), 0, "nothing was asked");
    drop(dear);
    let rich = stack(&wire.url, "1000000000").await?;
    let store = store_of(&rich).await?;
    let (dataset, job) = enqueue(&store, ROWS).await?;
    wait("the end of the job", 90, async || Ok(jobs::get(&store, job).await?.state == JobState::Succeeded))
        .await?;
    let written = dialogues::of_dataset(&store, dataset, None).await?;
    assert!(written.iter().all(|d| d.attempts == 2), "each was repaired once");
    Ok(())
}
