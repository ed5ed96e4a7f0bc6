//! A database of one's own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};

use crate::servers::{Servers, with_path};
use crate::workspace::workspace_root;

/// A fresh database; dropped with this value, whatever is still connected to it.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    url: String,
}

impl TestDb {
    /// A database with the workspace's migrations applied: a clone of a template made once per set of migrations.
    pub async fn new() -> Result<Self> {
        let mut admin = connect().await?;
        let template = template(&mut admin).await.context("the migrated template database")?;
        Self::create(&mut admin, Some(&template)).await
    }

    /// A database with nothing in it.
    pub async fn empty() -> Result<Self> {
        Self::create(&mut connect().await?, None).await
    }

    async fn create(admin: &mut PgConnection, template: Option<&str>) -> Result<Self> {
        let name = format!("ppx_test_{}", uuid::Uuid::new_v4().simple());
        let from = template.map_or_else(String::new, |template| format!(r#" TEMPLATE "{template}""#));
        execute(admin, format!(r#"CREATE DATABASE "{name}"{from}"#)).await?;
        let url = with_path(&Servers::get()?.database_url, &name)?;
        Ok(Self { name, url })
    }

    /// For `PPX__DATABASE__URL` or a pool of one's own.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A pool of a few connections.
    pub async fn pool(&self) -> Result<PgPool> {
        Ok(PgPoolOptions::new().max_connections(8).connect(&self.url).await?)
    }

    /// Every row of a table as Postgres prints it, to look for what must not be there.
    pub async fn rows_as_text(&self, table: &str) -> Result<String> {
        let sql = format!(r#"SELECT coalesce(string_agg(t::text, E'\n'), '') FROM "{table}" t"#);
        let mut connection = PgConnection::connect(&self.url).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?)
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let sql = format!(r#"DROP DATABASE IF EXISTS "{}" WITH (FORCE)"#, self.name);
        // On a thread with a runtime of its own: a value may be dropped inside any runtime or none. A failure is
        // left alone, since the servers are thrown away as a whole.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { execute(&mut connect().await?, sql).await })
        });
        drop(dropping.join());
    }
}

async fn connect() -> Result<PgConnection> {
    let url =
        tokio::task::spawn_blocking(|| Servers::get().map(|servers| servers.database_url.clone())).await??;
    PgConnection::connect(&url).await.with_context(|| format!("cannot connect to {url}"))
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<()> {
    connection.execute(AssertSqlSafe(sql)).await?;
    Ok(())
}

/// The name of the template for the migrations as they are; made under an advisory lock when missing, and renamed
/// into place last, so that a half-migrated template is never cloned.
async fn template(admin: &mut PgConnection) -> Result<String> {
    let folder = workspace_root().join("migrations");
    let key = fingerprint(&folder)?;
    let name = format!("ppx_template_{key:016x}");
    execute(admin, format!("SELECT pg_advisory_lock({})", key.cast_signed())).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
        .bind(&name)
        .fetch_one(&mut *admin)
        .await?;
    let made = if exists { Ok(()) } else { make_template(admin, &folder, &name).await };
    execute(admin, format!("SELECT pg_advisory_unlock({})", key.cast_signed())).await?;
    made.map(|()| name)
}

async fn make_template(admin: &mut PgConnection, folder: &Path, name: &str) -> Result<()> {
    let building = format!("{name}_building");
    execute(admin, format!(r#"DROP DATABASE IF EXISTS "{building}" WITH (FORCE)"#)).await?;
    execute(admin, format!(r#"CREATE DATABASE "{building}""#)).await?;
    let url = with_path(&Servers::get()?.database_url, &building)?;
    let migrator = sqlx::migrate::Migrator::new(folder).await?;
    let mut connection = PgConnection::connect(&url).await?;
    migrator.run(&mut connection).await?;
    connection.close().await?;
    execute(admin, format!(r#"ALTER DATABASE "{building}" RENAME TO "{name}""#)).await
}

/// A hash over names and contents of the migrations.
fn fingerprint(folder: &Path) -> Result<u64> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("no migrations in {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        std::fs::read(&file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
