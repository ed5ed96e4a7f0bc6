//! `ppx domain`

mod new;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use client::{ClientError, Result};
use domain::pack::DomainPack;

use super::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum DomainCommand {
    /// All versions of all domains.
    List,
    /// The whole pack of a domain as JSON.
    Get {
        /// Id, or id@version.
        domain: String,
    },
    /// The JSON Schema of packs; needs no server.
    Schema,
    /// Check a pack in a YAML or JSON file: schema, contradictions, and dialogues on trial; needs no server.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Add a pack as a draft.
    Add {
        /// The file.
        file: PathBuf,
    },
    /// Use a version for new datasets.
    Activate {
        /// id@version.
        domain: String,
    },
    /// Use none of the versions that were added any more.
    Retire {
        /// Id.
        domain: String,
    },
    /// What a pack makes of one row: prompts, a dialogue, the design.
    Preview {
        /// Id, or id@version.
        domain: String,
        /// Rows of the design.
        #[arg(long, default_value_t = 100)]
        dialogues: u32,
        /// Seed of the design.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Row to show.
        #[arg(long, default_value_t = 0)]
        row: u32,
    },
    /// Draft a pack with a writing model, for a person to review; nothing is activated.
    New(Box<new::NewArgs>),
}

pub(crate) async fn run(command: DomainCommand, context: &Context) -> Result<()> {
    match command {
        DomainCommand::Schema => context.out.line(&format!("{:#}", DomainPack::json_schema())),
        DomainCommand::Check { file } => {
            let pack = read(&file)?;
            let axes: Vec<String> =
                pack.axes.iter().map(|a| format!("{} {}", a.name, a.values.len())).collect();
            context.out.show(&json!({ "id": pack.id, "version": pack.version, "axes": axes.join(", ") }));
        }
        DomainCommand::List => {
            let list = context.client()?.domains().await?;
            context.out.table(&["id", "version", "state", "is_built_in", "created_by", "title"], &list.data);
        }
        DomainCommand::Get { domain } => {
            let (id, version) = named(&domain)?;
            context.out.line(&format!("{:#}", context.client()?.domain_pack(id, version).await?));
        }
        DomainCommand::Add { file } => context.out.show(&context.client()?.add_domain(&read(&file)?).await?),
        DomainCommand::Activate { domain } => {
            let (id, Some(version)) = named(&domain)? else {
                return Err(ClientError::Usage(format!("{domain:?} names no version; write id@version")));
            };
            context.out.show(&context.client()?.activate_domain(id, version).await?);
        }
        DomainCommand::Retire { domain } => context.client()?.retire_domain(&domain).await?,
        DomainCommand::Preview { domain, dialogues, seed, row } => {
            let (id, version) = named(&domain)?;
            let body =
                json!({ "domain": id, "version": version, "dialogues": dialogues, "seed": seed, "row": row });
            context.out.line(&format!("{:#}", context.client()?.preview_domain(&body).await?));
        }
        DomainCommand::New(args) => new::draft(*args, context).await?,
    }
    Ok(())
}

fn named(text: &str) -> Result<(&str, Option<u32>)> {
    let Some((id, version)) = text.split_once('@') else { return Ok((text, None)) };
    let version =
        version.parse().map_err(|_| ClientError::Usage(format!("{text:?} has no number after @")))?;
    Ok((id, Some(version)))
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> ClientError {
    let path = path.display().to_string();
    move |source| ClientError::File { path, source }
}

/// Reads a pack and tries it out.
fn read(path: &Path) -> Result<DomainPack> {
    let bytes = std::fs::read(path).map_err(file_error(path))?;
    let wrong = |error: &dyn std::fmt::Display| ClientError::Usage(format!("{}: {error}", path.display()));
    let pack = DomainPack::from_bytes(&bytes).map_err(|faults| wrong(&faults))?;
    drafting::trial::try_out(&pack).map_err(|error| wrong(&error))?;
    Ok(pack)
}
