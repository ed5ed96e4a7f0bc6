//! `ppx dataset`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::views::DatasetView;
use client::{ClientError, Result};
use domain::UploadId;
use domain::dataset::DatasetSpec;

use super::{Context, WaitArgs, archive, progress};

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Generate, speak, align and publish a dataset.
    Create {
        /// Name; one that exists gets the next version.
        #[arg(long)]
        name: String,
        /// Domain pack.
        #[arg(long, default_value = "pharma_adherence")]
        domain: String,
        /// Number of dialogues.
        #[arg(long)]
        dialogues: u32,
        /// Seed of every choice.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Dialogues per job.
        #[arg(long, default_value_t = 4)]
        shard_size: u32,
        /// Share held out for evaluation.
        #[arg(long, default_value_t = 0.05)]
        eval_fraction: f64,
        /// Stop after the dialogues are written: a person approves them, then `ppx dataset release`.
        #[arg(long)]
        approved_only: bool,
        /// Take over the dialogues of this dataset, by id or name, and continue its design; --dialogues counts both.
        #[arg(long, value_name = "DATASET")]
        extends: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Close the review of a dataset: its approved dialogues are spoken and published.
    Release {
        /// Id or name.
        dataset: String,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// The sampling design of a dataset: counts, relations of its axes, accept rates.
    Design {
        /// Id or name.
        dataset: String,
    },
    /// Import a dataset in the published layout: a folder or a .tar or .tar.gz on this machine.
    Import(ImportArgs),
    /// Download a published dataset: a folder, or an archive when OUT ends in .tar.
    Export {
        /// Id or name.
        dataset: String,
        /// Folder or .tar to write; must not exist.
        out: PathBuf,
    },
    /// What a dataset is like; for a refused import what was wrong.
    Report {
        /// Id or name.
        dataset: String,
        /// Write the page with plots here.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// The newest datasets.
    List,
    /// One dataset, by id or name; `NAME@3` is its third version.
    Get {
        /// Id or name.
        dataset: String,
        #[command(flatten)]
        wait: WaitArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Folder or archive.
    source: PathBuf,
    /// Name; without it that of the source. One that exists gets the next version.
    #[arg(long)]
    name: Option<String>,
    /// Label of the agent's words, e.g. SPEAKER_MAIN; without it the known labels are looked for.
    #[arg(long)]
    main_speaker_label: Option<String>,
    /// Share held out where the source has no eval manifest.
    #[arg(long, default_value_t = 0.05)]
    eval_fraction: f64,
    /// Seed of that choice.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Licence for the card, e.g. cc-by-4.0.
    #[arg(long)]
    license: Option<String>,
    /// Import without voice prompts.
    #[arg(long)]
    drop_voices: bool,
    /// Write the script's words in the place of recognised ones.
    #[arg(long)]
    script_words: bool,
    /// SOURCE is a path below the server's import folder, not on this machine.
    #[arg(long)]
    on_server: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) async fn run(command: DatasetCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    let (view, wait) = match command {
        DatasetCommand::Create {
            name,
            domain,
            dialogues,
            seed,
            shard_size,
            eval_fraction,
            approved_only,
            extends,
            wait,
        } => {
            let extends = match extends {
                Some(base) => Some(client.find_dataset(&base).await?.id),
                None => None,
            };
            let rest = DatasetSpec::default();
            let spec = DatasetSpec {
                domain,
                dialogues,
                seed,
                shard_size,
                eval_fraction,
                approved_only,
                extends,
                ..rest
            };
            (client.create_dataset(&name, &spec).await?, wait)
        }
        DatasetCommand::Release { dataset, wait } => {
            let id = client.find_dataset(&dataset).await?.id;
            (client.post(&format!("/v1/datasets/{id}/release"), &json!({})).await?, wait)
        }
        DatasetCommand::Design { dataset } => {
            let id = client.find_dataset(&dataset).await?.id;
            let design: Value = client.get(&format!("/v1/datasets/{id}/design"), &[]).await?;
            context.out.line(&format!("{design:#}"));
            return Ok(());
        }
        DatasetCommand::Import(args) => return import(args, context).await,
        DatasetCommand::Export { dataset, out } => return export(&dataset, &out, context).await,
        DatasetCommand::Report { dataset, html } => return report(&dataset, html.as_deref(), context).await,
        DatasetCommand::Get { dataset, wait } => (client.find_dataset(&dataset).await?, wait),
        DatasetCommand::List => {
            let list = client.datasets(50).await?;
            context.out.table(&["id", "name", "version", "state", "progress", "created_at"], &list.data);
            return Ok(());
        }
    };
    if !wait.wait {
        context.out.show(&view);
        return Ok(());
    }
    let view = progress::dataset(context, &view, &wait.options()).await?;
    context.out.show(&view);
    Ok(())
}

async fn import(args: ImportArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.source));
    let mut body = json!({
        "name": name, "eval_fraction": args.eval_fraction, "seed": args.seed, "drop_voices": args.drop_voices,
        "script_words": args.script_words, "license": args.license, "main_speaker_label": args.main_speaker_label,
    });
    if args.on_server {
        body["path"] = json!(args.source);
    } else {
        body["upload_id"] = json!(upload(&args.source, context).await?);
    }
    let view = client.import_dataset(&body).await?;
    if !args.wait.wait {
        context.out.show(&view);
        return Ok(());
    }
    match progress::job(context, view.job_id, "import", &args.wait.options()).await {
        Ok(_) => {
            context.out.show(&client.dataset(view.id).await?);
            Ok(())
        }
        Err(error) => {
            tell_faults(&view, context).await;
            Err(error)
        }
    }
}

/// All faults of a refused import; the job's error names the first ones only.
async fn tell_faults(view: &DatasetView, context: &Context) {
    let Ok(client) = context.client() else { return };
    let Ok(report) = client.dataset_report(view.id).await else { return };
    for fault in report["import"]["faults"].as_array().into_iter().flatten() {
        let text = |name: &str| fault[name].as_str().unwrap_or_default();
        let line = fault["line"].as_u64().map_or(String::new(), |line| format!(":{line}"));
        context.out.note(&format!("{}{line}: {} [{}]", text("file"), text("detail"), text("code")));
    }
}

/// `data/pharma.tar.gz` is `pharma`.
fn name_of(source: &Path) -> String {
    let file = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let file = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    [".tar.gz", ".tgz", ".tar"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(&file).to_owned()
}

async fn upload(source: &Path, context: &Context) -> Result<UploadId> {
    let (client, id) = (context.client()?, UploadId::generate());
    let bar = context.out.bar("upload");
    let packed;
    let archive = if source.is_dir() {
        bar.set_message("packing");
        packed = pack(source).await?;
        packed.path()
    } else {
        source
    };
    bar.set_message("sending");
    let sent = client.upload_archive(id, archive).await;
    bar.finish_and_clear();
    sent.map(|_| id)
}

/// The folder as a tar beside the system's other temporary files.
async fn pack(folder: &Path) -> Result<tempfile::NamedTempFile> {
    let (from, shown) = (folder.to_owned(), folder.to_owned());
    let packed = tokio::task::spawn_blocking(move || {
        let file = tempfile::NamedTempFile::new()?;
        let mut archive = tar::Builder::new(std::io::BufWriter::new(file.as_file()));
        // Links are sent as links, and the server refuses them by name.
        archive.follow_symlinks(false);
        archive.append_dir_all("dataset", &from)?;
        archive.into_inner()?.flush()?;
        Ok::<_, std::io::Error>(file)
    });
    let packed = packed.await.map_err(|e| ClientError::Usage(format!("cannot pack the folder: {e}")))?;
    packed.map_err(|source| ClientError::File { path: shown.display().to_string(), source })
}

async fn export(dataset: &str, out: &Path, context: &Context) -> Result<()> {
    let client = context.client()?;
    let view = client.find_dataset(dataset).await?;
    let bytes =
        archive::fetch(&client, &format!("/v1/datasets/{}/export", view.id), &[], out, context).await?;
    let sha256 = view.summary.map(|s| s.content_sha256);
    context.out.show(&json!({ "dataset": view.id, "out": out, "bytes": bytes, "content_sha256": sha256 }));
    Ok(())
}

async fn report(dataset: &str, html: Option<&Path>, context: &Context) -> Result<()> {
    let client = context.client()?;
    let view = client.find_dataset(dataset).await?;
    if let Some(path) = html {
        let page = client.dataset_report_page(view.id).await?;
        std::fs::write(path, page)
            .map_err(|source| ClientError::File { path: path.display().to_string(), source })?;
        context.out.note(&format!("wrote {}", path.display()));
        return Ok(());
    }
    let report = client.dataset_report(view.id).await?;
    if context.out.is_json() {
        context.out.show(&report);
        return Ok(());
    }
    context.out.table(&["measure", "median", "p10", "p90", "count"], &rows(&report["measured"]));
    for warning in report["warnings"].as_array().into_iter().flatten() {
        context.out.note(&format!("note: {}", warning.as_str().unwrap_or_default()));
    }
    tell_faults(&view, context).await;
    Ok(())
}

/// Every distribution of a report as a row.
fn rows(measured: &Value) -> Vec<Value> {
    let row = |name: &str, spread: &Value| {
        json!({ "measure": name, "median": spread["median"], "p10": spread["p10"], "p90": spread["p90"],
                "count": spread["count"] })
    };
    measured
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| value["median"].is_number())
        .map(|(name, value)| row(name, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_source_is_that_of_its_file() {
        assert_eq!(name_of(Path::new("/no/such/pharma.tar.gz")), "pharma");
        assert_eq!(name_of(Path::new("/no/such/pharma-v2")), "pharma-v2");
    }

    #[test]
    fn only_distributions_become_rows() {
        let measured =
            json!({ "hours": 1.0, "gap_s": { "median": 0.3, "p10": 0.1, "p90": 0.9, "count": 7 } });
        assert_eq!(
            rows(&measured),
            [json!({"measure": "gap_s", "median": 0.3, "p10": 0.1, "p90": 0.9, "count": 7})]
        );
    }
}
