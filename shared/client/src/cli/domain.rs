//! `ppx domain`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::pack::DomainPack;
use drafting::bootstrap;

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
    New(NewArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// What the calls are about, in a sentence or two.
    description: String,
    /// Id of the new domain.
    #[arg(long)]
    id: String,
    /// Command that asks the model: it gets the prompt on stdin and prints the answer.
    #[arg(long, value_name = "COMMAND")]
    with: String,
    /// Answers that are asked for before giving up.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Write the draft here; must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Store it on the server too, as a draft.
    #[arg(long)]
    add: bool,
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
        DomainCommand::New(args) => new(args, context).await?,
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

async fn new(args: NewArgs, context: &Context) -> Result<()> {
    if args.out.exists() {
        return Err(ClientError::Usage(format!("{} exists already", args.out.display())));
    }
    let mut prompt =
        format!("{}\n{}\n", bootstrap::system(), bootstrap::request(&args.id, &args.description));
    for round in 1..=args.rounds {
        context.out.note(&format!("round {round} of {}: asking the model", args.rounds));
        let answer = ask(&args.with, &prompt)?;
        match bootstrap::read(&args.id, &answer) {
            Ok(pack) => return keep(&pack, &args, context).await,
            Err(faults) => {
                let told = bootstrap::repair(&faults);
                context.out.note(&told);
                prompt.push_str(&format!("\nYour last answer:\n{answer}\n\n{told}\n"));
            }
        }
    }
    Err(ClientError::Usage(format!("the model gave no valid pack in {} rounds", args.rounds)))
}

async fn keep(pack: &DomainPack, args: &NewArgs, context: &Context) -> Result<()> {
    let text = serde_json::to_string_pretty(pack).unwrap_or_default();
    let mut file = std::fs::File::create_new(&args.out).map_err(file_error(&args.out))?;
    file.write_all(text.as_bytes()).map_err(file_error(&args.out))?;
    if args.add {
        context.out.show(&context.client()?.add_domain(pack).await?);
    }
    let shown: Value = json!({ "id": pack.id, "version": pack.version, "state": "draft", "file": args.out });
    context.out.show(&shown);
    context.out.note("A person has to read it; then: ppx domain add FILE, ppx domain activate ID@VERSION");
    Ok(())
}

/// The answer of the command on its standard output.
fn ask(command: &str, prompt: &str) -> Result<String> {
    let failed = |detail: String| ClientError::Usage(format!("{command:?}: {detail}"));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let mut stdin = child.stdin.take().ok_or_else(|| failed("has no standard input".into()))?;
    let text = prompt.to_owned();
    // Beside the reading below: a command may answer before it has read everything.
    let feeding = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    let _ = feeding.join();
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| failed("its answer is not UTF-8".into()))
}
