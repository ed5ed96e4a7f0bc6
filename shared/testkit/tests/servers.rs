//! The test support itself, against its real servers.

use std::time::Duration;

use anyhow::Result;
use sqlx::Row;
use testkit::{Broker, Servers, TestBus, TestDb, TestRedis, wait_until, workspace_root};

#[tokio::test]
async fn two_databases_do_not_see_each_other_and_go_when_dropped() -> Result<()> {
    let (first, second) = (TestDb::empty().await?, TestDb::empty().await?);
    let pool = first.pool().await?;
    sqlx::query("CREATE TABLE only_here (n int)").execute(&pool).await?;
    let other = second.pool().await?;
    let row = sqlx::query("SELECT to_regclass('only_here') IS NULL").fetch_one(&other).await?;
    assert!(row.get::<bool, _>(0), "the table of one database is visible in the other");

    let name = first.name().to_owned();
    drop(first);
    let left =
        sqlx::query("SELECT FROM pg_database WHERE datname = $1").bind(&name).fetch_all(&other).await?;
    assert!(left.is_empty(), "{name} was not dropped");
    Ok(())
}

#[tokio::test]
async fn a_new_database_has_every_migration_applied() -> Result<()> {
    // Two at once: the template is made by one of them.
    let (first, second) = tokio::join!(TestDb::new(), TestDb::new());
    let files = std::fs::read_dir(workspace_root().join("migrations"))?.filter_map(Result::ok);
    let files =
        files.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sql")).count();
    for database in [first?, second?] {
        let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations WHERE success")
            .fetch_one(&database.pool().await?)
            .await?;
        assert_eq!(usize::try_from(applied)?, files);
    }
    Ok(())
}

#[tokio::test]
async fn each_test_gets_its_own_vhost_and_redis_database() -> Result<()> {
    let (first, second) = (TestBus::new().await?, TestBus::new().await?);
    assert_ne!(first.url(), second.url());
    let (one, two) = (TestRedis::new()?, TestRedis::new()?);
    assert_ne!(one.url(), two.url());
    Ok(())
}

#[test]
fn the_servers_are_the_same_for_everybody() -> Result<()> {
    assert_eq!(Servers::get()?, Servers::get()?);
    Ok(())
}

#[tokio::test]
async fn a_private_broker_comes_back_after_being_killed() -> Result<()> {
    let mut broker = Broker::start().await?;
    let url = broker.url();
    let address = url.split(['@', '/']).find(|part| part.starts_with("127.")).expect("has a host").to_owned();
    let open = async || tokio::net::TcpStream::connect(&address).await.is_ok();
    assert!(open().await);
    broker.kill().await?;
    assert!(!open().await, "a killed broker still accepts connections");
    broker.restart().await?;
    wait_until("the broker to accept connections again", Duration::from_secs(5), open).await?;
    assert_eq!(broker.url(), url);
    Ok(())
}
