//! The worker loop against a real database and a real broker: the whole of a job's life inside one process.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bus::Bus;
use chassis::testing::{Harness, spawn};
use chassis::{Completion, JobContext, JobError, JobHandler, async_trait};
use domain::dataset::DatasetSpec;
use domain::job::{JobKind, JobSpec, JobState, RowRange};
use domain::{DatasetId, ErrorCode, JobId};
use store::jobs::{self, NewJob};
use store::{Store, events};
use testkit::{TestBus, TestDb, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// What the handler does in each attempt.
#[derive(Clone, Copy)]
enum Script {
    Succeed,
    PanicOnce,
    TransientOnce,
    Refuse,
    UntilStopped,
}

struct Scripted {
    script: Script,
    runs: Arc<AtomicU32>,
}

#[async_trait]
impl JobHandler for Scripted {
    fn kind(&self) -> JobKind {
        JobKind::Generate
    }
    async fn run(&self, ctx: &JobContext, spec: JobSpec) -> Result<Completion, JobError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let JobSpec::Generate { dataset_id, .. } = spec else { panic!("another kind") };
        match self.script {
            Script::PanicOnce if run == 0 => panic!("as told"),
            Script::TransientOnce if run == 0 => {
                return Err(JobError::transient(ErrorCode::Unavailable, "as told"));
            }
            Script::Refuse => return Err(JobError::permanent(ErrorCode::InvalidDialogue, "as told")),
            Script::UntilStopped => loop {
                if let Some(stop) = ctx.stop() {
                    return Err(JobError::Stopped(stop));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            _ => {}
        }
        ctx.progress(1, 1, "dialogues").await?;
        Ok(Completion::Generated { dataset: dataset_id, dialogues: Vec::new() })
    }
}

struct World {
    store: Store,
    dataset: DatasetId,
    runs: Arc<AtomicU32>,
    harness: Harness,
    _db: TestDb,
    _bus: TestBus,
}

async fn world(script: Script) -> World {
    let (db, vhost) = (TestDb::new().await.unwrap(), TestBus::new().await.unwrap());
    let store = Store::from_pool(db.pool().await.unwrap());
    let runs = Arc::new(AtomicU32::new(0));
    let bus = Arc::new(Bus::new(vhost.url(), Duration::from_secs(10)).unwrap());
    let handler = Scripted { script, runs: Arc::clone(&runs) };
    let harness = spawn(db.url(), store.clone(), bus, vec![Arc::new(handler)]).unwrap();
    let dataset = DatasetId::generate();
    let mut tx = store.begin().await.unwrap();
    let spec = DatasetSpec {
        domain: "d".into(),
        dialogues: 2,
        seed: 0,
        shard_size: 1,
        eval_fraction: 0.0,
        ..DatasetSpec::default()
    };
    store::datasets::insert(&mut tx, dataset, "a", &spec).await.unwrap();
    tx.commit().await.unwrap();
    World { store, dataset, runs, harness, _db: db, _bus: vhost }
}

impl World {
    async fn enqueue(&self) -> JobId {
        let id = JobId::generate();
        let spec = JobSpec::Generate { dataset_id: self.dataset, rows: RowRange { from: 0, to: 1 } };
        let mut tx = self.store.begin().await.unwrap();
        jobs::enqueue(&mut tx, &NewJob { id, spec, needs: vec![], max_attempts: 3, traceparent: None })
            .await
            .unwrap();
        tx.commit().await.unwrap();
        id
    }
    async fn reaches(&self, id: JobId, state: JobState) {
        let store = &self.store;
        wait_until(state.as_str(), PATIENCE, async || jobs::get(store, id).await.unwrap().state == state)
            .await
            .unwrap();
    }
    async fn story(&self, id: JobId) -> Vec<String> {
        events::after(&self.store, id, 0, 100).await.unwrap().into_iter().map(|e| e.kind).collect()
    }
}

#[tokio::test]
async fn a_job_goes_from_outbox_to_worker_to_success_and_tells_its_story() {
    let w = world(Script::Succeed).await;
    let id = w.enqueue().await;
    w.reaches(id, JobState::Succeeded).await;
    assert_eq!(w.story(id).await, ["job.queued", "job.started", "job.progress", "job.succeeded"]);
    assert_eq!(w.runs.load(Ordering::SeqCst), 1);
    w.harness.stop().await;
}

#[tokio::test]
async fn a_doorbell_brings_a_job_to_its_worker_without_waiting_for_the_poll() {
    let w = world(Script::Succeed).await;
    w.reaches(w.enqueue().await, JobState::Succeeded).await;
    let started = std::time::Instant::now();
    for _ in 0..5 {
        w.reaches(w.enqueue().await, JobState::Succeeded).await;
    }
    // Five polls would take 25 s.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    w.harness.stop().await;
}

#[tokio::test]
async fn a_panic_fails_the_job_with_its_message_and_the_worker_goes_on() {
    let w = world(Script::PanicOnce).await;
    let first = w.enqueue().await;
    w.reaches(first, JobState::Failed).await;
    let error = jobs::get(&w.store, first).await.unwrap().error.unwrap();
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.detail.contains("as told"), "{}", error.detail);
    w.reaches(w.enqueue().await, JobState::Succeeded).await;
    w.harness.stop().await;
}

#[tokio::test]
async fn a_transient_failure_is_tried_again_and_a_permanent_one_is_not() {
    let w = world(Script::TransientOnce).await;
    let id = w.enqueue().await;
    w.reaches(id, JobState::Succeeded).await;
    assert_eq!(w.runs.load(Ordering::SeqCst), 2);
    w.harness.stop().await;
    let w = world(Script::Refuse).await;
    let id = w.enqueue().await;
    w.reaches(id, JobState::Failed).await;
    assert_eq!(w.runs.load(Ordering::SeqCst), 1);
    w.harness.stop().await;
}

#[tokio::test]
async fn a_running_job_that_is_cancelled_stops_within_a_heartbeat() {
    let w = world(Script::UntilStopped).await;
    let id = w.enqueue().await;
    w.reaches(id, JobState::Running).await;
    jobs::cancel(&w.store, id).await.unwrap();
    w.reaches(id, JobState::Cancelled).await;
    w.harness.stop().await;
}

#[tokio::test]
async fn a_process_that_goes_down_hands_its_job_back_for_the_next_one() {
    let w = world(Script::UntilStopped).await;
    let id = w.enqueue().await;
    w.reaches(id, JobState::Running).await;
    w.harness.stop().await;
    assert_eq!(jobs::get(&w.store, id).await.unwrap().state, JobState::Queued);
}
