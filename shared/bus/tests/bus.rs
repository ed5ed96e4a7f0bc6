//! The bus against a real broker.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use bus::{Bus, EventEnvelope, JobEnvelope};
use domain::JobId;
use domain::job::JobKind;
use testkit::{Broker, TestBus, wait_for};

const PATIENCE: Duration = Duration::from_secs(10);

fn ring(id: JobId) -> JobEnvelope {
    JobEnvelope::V1 { job_id: id, kind: JobKind::Train, traceparent: None }
}

#[tokio::test]
async fn a_doorbell_that_is_not_acknowledged_rings_again_and_one_that_is_does_not() {
    let vhost = TestBus::new().await.unwrap();
    let bus = Bus::new(vhost.url(), PATIENCE).unwrap();
    let id = JobId::generate();
    bus.publish_job("train", &ring(id)).await.unwrap();
    let first = bus.take(JobKind::Train, PATIENCE).await.unwrap().unwrap();
    assert_eq!(first.envelope, ring(id));
    drop(first);
    let again = bus.take(JobKind::Train, PATIENCE).await.unwrap().unwrap();
    assert_eq!(again.envelope, ring(id));
    again.acknowledge().await.unwrap();
    assert!(bus.take(JobKind::Train, Duration::from_millis(300)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_worker_that_has_taken_one_is_not_handed_the_next() {
    let vhost = TestBus::new().await.unwrap();
    let (busy, idle) = (Bus::new(vhost.url(), PATIENCE).unwrap(), Bus::new(vhost.url(), PATIENCE).unwrap());
    let (a, b) = (JobId::generate(), JobId::generate());
    busy.publish_job("train", &ring(a)).await.unwrap();
    busy.publish_job("train", &ring(b)).await.unwrap();
    let held = busy.take(JobKind::Train, PATIENCE).await.unwrap().unwrap();
    let other = idle.take(JobKind::Train, PATIENCE).await.unwrap().unwrap();
    assert_ne!(held.envelope, other.envelope);
}

#[tokio::test]
async fn queues_that_an_earlier_version_declared_otherwise_are_replaced() {
    use lapin::options::QueueDeclareOptions;
    let vhost = TestBus::new().await.unwrap();
    let old = lapin::Connection::connect(vhost.url(), lapin::ConnectionProperties::default()).await.unwrap();
    let channel = old.create_channel().await.unwrap();
    for queue in ["dead", "jobs.train", "jobs.compare"] {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.into(), durable, Default::default()).await.unwrap();
    }
    let bus = Bus::new(vhost.url(), PATIENCE).unwrap();
    let id = JobId::generate();
    bus.publish_job("train", &ring(id)).await.unwrap();
    let bell = bus.take(JobKind::Train, PATIENCE).await.unwrap().unwrap();
    assert_eq!(bell.envelope, ring(id));
}

#[tokio::test]
async fn a_listener_hears_events_published_after_it_subscribed() {
    let vhost = TestBus::new().await.unwrap();
    let bus = Bus::new(vhost.url(), PATIENCE).unwrap();
    let mut events = bus.events().await.unwrap();
    let sent = EventEnvelope::V1 { job_id: JobId::generate(), seq: 7 };
    bus.publish_event("job.train.progress", &sent).await.unwrap();
    let heard = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap();
    assert_eq!(heard, sent);
}

#[tokio::test]
async fn publishing_and_taking_work_again_after_the_broker_was_killed_without_anybody_mending_it() {
    let mut broker = Broker::start().await.unwrap();
    let bus = Bus::new(&broker.url(), PATIENCE).unwrap();
    bus.check().await.unwrap();
    broker.kill().await.unwrap();
    assert!(bus.publish_job("train", &ring(JobId::generate())).await.is_err());
    broker.restart().await.unwrap();
    let id = JobId::generate();
    // The queue was declared just before the kill and may be broken: taking repairs it, and what was rung before that is lost.
    wait_for("a doorbell after the restart", Duration::from_secs(60), async || {
        bus.publish_job("train", &ring(id)).await.ok()?;
        bus.take(JobKind::Train, Duration::from_secs(1)).await.ok()?
    })
    .await
    .unwrap();
}
