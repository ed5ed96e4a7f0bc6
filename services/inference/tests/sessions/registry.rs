use std::time::Duration;

use anyhow::{Context, Result};
use chassis::{CancellationToken, settings::Redis};
use inference::engine::Engine;
use inference::registry::{Entry, Registry};
use testkit::TestRedis;

use crate::house::settings;

#[tokio::test]
async fn the_entry_tells_address_and_free_places_expires_and_goes_at_shutdown() -> Result<()> {
    let redis = TestRedis::new()?;
    let engine = Engine::start(&settings(&[("MAX_SESSIONS", "3")])?)?;
    let _taken = engine.reserve().context("free")?;
    let section = Redis { url: redis.url().into(), timeout_ms: 50 };
    let shutdown = CancellationToken::new();
    let entry = Registry::new(&section, "http://10.0.0.1:9200".into())?;
    let task = tokio::spawn(entry.announce(engine.clone(), shutdown.clone()));
    let mut connection = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    let mut keys = async || -> Option<Vec<String>> {
        redis::cmd("KEYS").arg("ppx:inference:*").query_async(&mut connection).await.ok()
    };
    let key = testkit::wait_for("the entry", Duration::from_secs(10), async || keys().await?.pop()).await?;
    let mut connection = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    let text: String = redis::cmd("GET").arg(&key).query_async(&mut connection).await?;
    let told: Entry = serde_json::from_str(&text)?;
    assert_eq!(told, Entry { url: "http://10.0.0.1:9200".into(), free_slots: 2, models: Vec::new() });
    let ttl: i64 = redis::cmd("TTL").arg(&key).query_async(&mut connection).await?;
    assert!((1..=10).contains(&ttl), "{ttl}");
    shutdown.cancel();
    task.await??;
    let left: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut connection).await?;
    assert!(!left);
    Ok(())
}

#[tokio::test]
async fn a_missing_redis_stops_nothing() -> Result<()> {
    let engine = Engine::start(&settings(&[])?)?;
    let url = format!("redis://127.0.0.1:{}/0", testkit::free_port()?);
    let shutdown = CancellationToken::new();
    let entry = Registry::new(&Redis { url: url.into(), timeout_ms: 50 }, "http://x".into())?;
    let task = tokio::spawn(entry.announce(engine, shutdown.clone()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!task.is_finished());
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), task).await???;
    Ok(())
}
