//! The subcommands of the binary.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use chassis::Settings;
use chassis::secrecy::ExposeSecret;
use chassis::settings::Database;
use clap::{Parser, Subcommand};
use store::{Store, StoreOptions};

use crate::auth::key;
use crate::openapi;
use crate::settings::AuthSettings;

/// The public gateway of Plexforge.
#[derive(Debug, Parser)]
#[command(name = "gateway", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API (the default).
    Serve,
    /// Apply the migrations that are missing.
    Migrate,
    /// Write openapi/openapi.json, or compare it with this program.
    Openapi {
        /// Change nothing; fail when the file differs.
        #[arg(long)]
        check: bool,
        /// The file.
        #[arg(long, default_value = "openapi/openapi.json")]
        file: PathBuf,
    },
    /// Print a fresh API key for PPX__AUTH__BOOTSTRAP_KEY.
    BootstrapKey,
    /// Ask the gateway running here whether it lives.
    Healthcheck,
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        // The chassis sees `healthcheck` itself.
        None | Some(Command::Serve | Command::Healthcheck) => return chassis::run("gateway", crate::build),
        Some(Command::Migrate) => migrate(),
        Some(Command::Openapi { check, file }) => write_openapi(&file, check),
        Some(Command::BootstrapKey) => bootstrap_key(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gateway: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn migrate() -> anyhow::Result<()> {
    let database: Database = Settings::load()?.section("database")?;
    let options = StoreOptions {
        url: database.url.expose_secret().to_owned(),
        max_connections: 2,
        acquire_timeout: Duration::from_secs(30),
        // Index builds take longer than any statement of the running services.
        statement_timeout: Duration::from_secs(3600),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let store = Store::open(&options)?;
        store.migrate().await.context("cannot migrate")?;
        store.close().await;
        Ok(())
    })
}

fn write_openapi(file: &std::path::Path, check: bool) -> anyhow::Result<()> {
    let document = openapi::text();
    if check {
        let committed =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        anyhow::ensure!(
            committed == document,
            "{} differs from this program: run `gateway openapi`",
            file.display()
        );
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(file, document).with_context(|| format!("cannot write {}", file.display()))
}

fn bootstrap_key() -> anyhow::Result<()> {
    let auth: AuthSettings = Settings::load()?.section("auth")?;
    println!("{}", key::generate(&auth.key_environment).text);
    Ok(())
}
