//! The job core against a real database: claims, fencing, needs, retries, sweeping, events.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use domain::dataset::DatasetSpec;
use domain::job::{JobFailure, JobKind, JobSpec, JobState, Progress, RowRange};
use domain::{DatasetId, ErrorCode, JobId};
use store::completion::Completion;
use store::jobs::{self, NewJob};
use store::leases::{self, Claim};
use store::{Store, StoreError, events, outbox};
use testkit::TestDb;

const LEASE: Duration = Duration::from_secs(30);

struct World {
    store: Store,
    dataset: DatasetId,
    _db: TestDb,
}

async fn world() -> World {
    let db = TestDb::new().await.unwrap();
    let store = Store::from_pool(db.pool().await.unwrap());
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
    World { store, dataset, _db: db }
}

impl World {
    async fn enqueue(&self, kind: JobKind, needs: &[JobId], max_attempts: i32) -> JobId {
        let rows = RowRange { from: 0, to: 1 };
        let dataset_id = self.dataset;
        let spec = match kind {
            JobKind::Generate => JobSpec::Generate { dataset_id, rows },
            JobKind::Render => JobSpec::Render { dataset_id, rows },
            _ => JobSpec::Align { dataset_id, rows },
        };
        let id = JobId::generate();
        let mut tx = self.store.begin().await.unwrap();
        let job = NewJob { id, spec, needs: needs.to_vec(), max_attempts, traceparent: None };
        jobs::enqueue(&mut tx, &job).await.unwrap();
        tx.commit().await.unwrap();
        id
    }
    async fn claim(&self, id: JobId, lease: Duration) -> Option<Claim> {
        leases::claim(&self.store, id, "test", lease).await.unwrap().map(|c| c.claim)
    }
    fn nothing_made(&self) -> Completion {
        Completion::Generated { dataset: self.dataset, dialogues: Vec::new() }
    }
    async fn state(&self, id: JobId) -> JobState {
        jobs::get(&self.store, id).await.unwrap().state
    }
    async fn rung(&self) -> Vec<String> {
        let mut tx = self.store.begin().await.unwrap();
        let batch = outbox::take_batch(&mut tx, 100).await.unwrap();
        let ids: Vec<i64> = batch.iter().map(|m| m.id).collect();
        outbox::mark_sent(&mut tx, &ids).await.unwrap();
        tx.commit().await.unwrap();
        batch.into_iter().filter(|m| m.exchange == "jobs").map(|m| m.routing_key).collect()
    }
}

#[tokio::test]
async fn one_of_many_concurrent_claims_wins() {
    let w = world().await;
    let id = w.enqueue(JobKind::Generate, &[], 5).await;
    let claims = futures_all((0..8).map(|_| {
        let store = w.store.clone();
        async move { leases::claim(&store, id, "test", LEASE).await.unwrap().is_some() }
    }))
    .await;
    assert_eq!(claims.into_iter().filter(|won| *won).count(), 1);
    assert!(leases::claim_next(&w.store, JobKind::Generate, "test", LEASE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_job_is_rung_only_when_everything_it_needs_has_succeeded() {
    let w = world().await;
    let a = w.enqueue(JobKind::Generate, &[], 5).await;
    let b = w.enqueue(JobKind::Generate, &[], 5).await;
    let c = w.enqueue(JobKind::Render, &[a, b], 5).await;
    assert_eq!(w.rung().await, ["generate", "generate"]);
    assert!(w.claim(c, LEASE).await.is_none(), "blocked jobs cannot be claimed");
    for (id, rings) in [(a, vec![]), (b, vec!["render".to_owned()])] {
        let claim = w.claim(id, LEASE).await.unwrap();
        leases::finish(&w.store, claim, w.nothing_made()).await.unwrap();
        assert_eq!(w.rung().await, rings);
    }
    assert!(w.claim(c, LEASE).await.is_some());
}

#[tokio::test]
async fn a_worker_whose_lease_was_taken_over_writes_nothing() {
    let w = world().await;
    let id = w.enqueue(JobKind::Generate, &[], 5).await;
    let old = w.claim(id, Duration::ZERO).await.unwrap();
    leases::sweep(&w.store, LEASE).await.unwrap();
    let new = w.claim(id, LEASE).await.unwrap();
    assert_eq!(new.attempt, old.attempt + 1);
    let progress = Progress { done: 1, total: 2, unit: "dialogues".into() };
    for lost in [
        leases::finish(&w.store, old, w.nothing_made()).await,
        leases::progress(&w.store, old, &progress).await,
        leases::heartbeat(&w.store, old, LEASE).await.map(|_| ()),
        leases::hand_back(&w.store, old).await,
        leases::finish_cancelled(&w.store, old).await,
    ] {
        assert!(matches!(lost, Err(StoreError::LeaseLost { .. })), "{lost:?}");
    }
    leases::finish(&w.store, new, w.nothing_made()).await.unwrap();
    assert_eq!(w.state(id).await, JobState::Succeeded);
}

#[tokio::test]
async fn events_count_from_one_without_gaps_even_under_concurrent_writers() {
    let w = world().await;
    let id = w.enqueue(JobKind::Generate, &[], 5).await;
    let claim = w.claim(id, LEASE).await.unwrap();
    futures_all((0..20).map(|n| {
        let store = w.store.clone();
        async move {
            let progress = Progress { done: n, total: 20, unit: "x".into() };
            leases::progress(&store, claim, &progress).await.unwrap();
        }
    }))
    .await;
    leases::finish(&w.store, claim, w.nothing_made()).await.unwrap();
    let seqs: Vec<i64> = events::after(&w.store, id, 0, 100).await.unwrap().iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=23).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_lost_worker_costs_an_attempt_and_the_last_one_fails_the_job_and_what_needs_it() {
    let w = world().await;
    let id = w.enqueue(JobKind::Generate, &[], 2).await;
    let next = w.enqueue(JobKind::Render, &[id], 2).await;
    for state in [JobState::Queued, JobState::Failed] {
        w.claim(id, Duration::ZERO).await.unwrap();
        assert_eq!(leases::sweep(&w.store, LEASE).await.unwrap().0, 1);
        assert_eq!(w.state(id).await, state);
    }
    let (job, dependant) = (jobs::get(&w.store, id).await.unwrap(), jobs::get(&w.store, next).await.unwrap());
    assert_eq!(job.error.unwrap().code, ErrorCode::WorkerLost);
    assert_eq!(dependant.error.unwrap().code, ErrorCode::NeedFailed);
}

#[tokio::test]
async fn a_transient_failure_waits_and_a_permanent_one_does_not_come_back() {
    let w = world().await;
    let failure = JobFailure { code: ErrorCode::Unavailable, detail: "x".into() };
    let id = w.enqueue(JobKind::Generate, &[], 5).await;
    let claim = w.claim(id, LEASE).await.unwrap();
    leases::fail(&w.store, claim, &failure, Some(Duration::from_secs(3600))).await.unwrap();
    assert_eq!(w.state(id).await, JobState::Queued);
    assert!(w.claim(id, LEASE).await.is_none(), "not before its time");
    let other = w.enqueue(JobKind::Generate, &[], 5).await;
    let claim = w.claim(other, LEASE).await.unwrap();
    leases::fail(&w.store, claim, &failure, None).await.unwrap();
    assert_eq!(w.state(other).await, JobState::Failed);
}

#[tokio::test]
async fn cancel_and_finish_race_to_exactly_one_terminal_state() {
    let w = world().await;
    for _ in 0..50 {
        let id = w.enqueue(JobKind::Generate, &[], 5).await;
        let claim = w.claim(id, LEASE).await.unwrap();
        let (_, _) =
            tokio::join!(jobs::cancel(&w.store, id), leases::finish(&w.store, claim, w.nothing_made()));
        let stopped = leases::finish_cancelled(&w.store, claim).await;
        let state = w.state(id).await;
        assert!(state.is_terminal(), "{state:?}");
        let ends = events::after(&w.store, id, 0, 100).await.unwrap();
        let ends =
            ends.iter().filter(|e| matches!(e.kind.as_str(), "job.succeeded" | "job.cancelled")).count();
        assert_eq!(ends, 1, "{stopped:?}");
    }
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_at_once_with_the_jobs_that_need_it() {
    let w = world().await;
    let a = w.enqueue(JobKind::Generate, &[], 5).await;
    let b = w.enqueue(JobKind::Render, &[a], 5).await;
    let c = w.enqueue(JobKind::Align, &[b], 5).await;
    assert_eq!(jobs::cancel(&w.store, a).await.unwrap().state, JobState::Cancelled);
    for id in [b, c] {
        assert_eq!(w.state(id).await, JobState::Cancelled);
    }
    assert_eq!(jobs::cancel(&w.store, a).await.unwrap().state, JobState::Cancelled, "again is no error");
}

#[tokio::test]
async fn a_job_that_was_handed_back_keeps_its_tries() {
    let w = world().await;
    let id = w.enqueue(JobKind::Generate, &[], 1).await;
    for _ in 0..3 {
        let claim = w.claim(id, LEASE).await.unwrap();
        leases::hand_back(&w.store, claim).await.unwrap();
    }
    let claim = w.claim(id, LEASE).await.unwrap();
    leases::finish(&w.store, claim, w.nothing_made()).await.unwrap();
}

#[tokio::test]
async fn a_silent_doorbell_is_rung_again() {
    let w = world().await;
    w.enqueue(JobKind::Generate, &[], 5).await;
    assert_eq!(w.rung().await.len(), 1);
    assert_eq!(leases::sweep(&w.store, LEASE).await.unwrap().1, 0);
    assert_eq!(leases::sweep(&w.store, Duration::ZERO).await.unwrap().1, 1);
    assert_eq!(w.rung().await.len(), 1);
}

async fn futures_all<F>(work: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let handles: Vec<_> = work.map(tokio::spawn).collect();
    let mut out = Vec::new();
    for handle in handles {
        out.push(handle.await.unwrap());
    }
    out
}
