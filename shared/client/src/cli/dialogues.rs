//! `ppx dialogues`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::DialogueId;

use super::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum DialoguesCommand {
    /// Dialogues with all of what is asked for, oldest first.
    List(ListArgs),
    /// One dialogue: turns with injections in their places, and what it breaks.
    Show {
        /// Id.
        id: DialogueId,
        /// Write the page here instead.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Approve a dialogue as it is now.
    Approve {
        /// Id.
        id: DialogueId,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Reject a dialogue as it is now.
    Reject {
        /// Id.
        id: DialogueId,
        /// Why.
        #[arg(long)]
        reason: String,
    },
    /// Replace parts of a dialogue from a JSON file with text_prompt, turns or context_injections; it is checked again.
    Edit {
        /// Id.
        id: DialogueId,
        /// The file.
        file: PathBuf,
        /// Revision that the file was made from; without it the one of now.
        #[arg(long)]
        revision: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Of this dataset, by id or name.
    #[arg(long)]
    dataset: Option<String>,
    /// Written by this job.
    #[arg(long)]
    job: Option<String>,
    /// valid, invalid, approved or rejected.
    #[arg(long)]
    status: Option<String>,
    /// Breaking this rule, e.g. V08.
    #[arg(long)]
    code: Option<String>,
    /// With these values of axes, e.g. tenor:warm,outcome:deferred.
    #[arg(long)]
    axis: Option<String>,
    /// With these words.
    #[arg(long, short)]
    words: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

pub(crate) async fn run(command: DialoguesCommand, context: &Context) -> Result<()> {
    let client = context.client()?;
    match command {
        DialoguesCommand::List(args) => list(args, context).await,
        DialoguesCommand::Show { id, html: Some(path) } => {
            let page = client.dialogue_page(id).await?;
            std::fs::write(&path, page)
                .map_err(|source| ClientError::File { path: path.display().to_string(), source })
        }
        DialoguesCommand::Show { id, html: None } => {
            let dialogue = client.dialogue(id).await?;
            if context.out.is_json() {
                context.out.show(&dialogue)
            } else {
                read_out(&dialogue, context)
            }
            Ok(())
        }
        DialoguesCommand::Approve { id, reason } => {
            decide(id, json!({ "decision": "approve", "reason": reason }), context).await
        }
        DialoguesCommand::Reject { id, reason } => {
            decide(id, json!({ "decision": "reject", "reason": reason }), context).await
        }
        DialoguesCommand::Edit { id, file, revision } => {
            let shown = file.display().to_string();
            let text = std::fs::read_to_string(&file)
                .map_err(|source| ClientError::File { path: shown.clone(), source })?;
            let body: Value = serde_json::from_str(&text)
                .map_err(|e| ClientError::Usage(format!("{shown} is no JSON: {e}")))?;
            let seen = match revision {
                Some(revision) => revision,
                None => revision_of(&client.dialogue(id).await?),
            };
            summary(&client.update_dialogue(id, seen, &body).await?, context);
            Ok(())
        }
    }
}

async fn list(args: ListArgs, context: &Context) -> Result<()> {
    let client = context.client()?;
    let dataset = match &args.dataset {
        Some(dataset) => Some(client.find_dataset(dataset).await?.id.to_string()),
        None => None,
    };
    let mut filter = vec![("limit", args.limit.to_string()), ("order", "asc".to_owned())];
    for (name, value) in [
        ("dataset_id", dataset),
        ("job_id", args.job),
        ("status", args.status),
        ("code", args.code),
        ("axis", args.axis),
        ("q", args.words),
    ] {
        filter.extend(value.map(|value| (name, value)));
    }
    let rows: Vec<Value> = client.dialogues(&filter).await?.data.iter().map(row).collect();
    context.out.table(&["id", "row", "status", "breaks", "turns", "injections", "record"], &rows);
    Ok(())
}

fn row(d: &Value) -> Value {
    let count = |name: &str| d["record"][name].as_array().map_or(0, Vec::len);
    json!({
        "id": d["id"], "row": d["row"], "status": d["status"], "breaks": codes(d), "turns": count("turns"),
        "injections": count("context_injections"), "record": d["record"]["id"],
    })
}

fn codes(dialogue: &Value) -> String {
    let faults = dialogue["faults"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut codes: Vec<&str> = faults.iter().filter_map(|f| f["code"].as_str()).collect();
    codes.dedup();
    codes.join(" ")
}

fn read_out(dialogue: &Value, context: &Context) {
    let record = &dialogue["record"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    context.out.line(&format!(
        "{}  {}  row {}",
        text(&record["id"]),
        text(&dialogue["status"]),
        dialogue["row"]
    ));
    for fault in items(&dialogue["faults"]) {
        context.out.line(&format!("  {} {}", text(&fault["code"]), text(&fault["detail"])));
    }
    context.out.line(&format!("\n{}\n", text(&record["text_prompt"])));
    for turn in items(&record["turns"]) {
        context.out.line(&format!(
            "{:>3} {:5} {}",
            turn["index"],
            text(&turn["speaker"]),
            text(&turn["text"])
        ));
        for injection in items(&record["context_injections"]) {
            if injection["after_turn"] == turn["index"] {
                context.out.line(&format!("          [{}]", text(&injection["text"])));
            }
        }
    }
}

fn revision_of(dialogue: &Value) -> u64 {
    dialogue["revision"].as_u64().unwrap_or_default()
}

async fn decide(id: DialogueId, body: Value, context: &Context) -> Result<()> {
    let client = context.client()?;
    let revision = revision_of(&client.dialogue(id).await?);
    summary(&client.review_dialogue(id, revision, &body).await?, context);
    Ok(())
}

fn summary(dialogue: &Value, context: &Context) {
    context.out.show(&json!({
        "id": dialogue["id"], "status": dialogue["status"], "revision": dialogue["revision"],
        "faults": dialogue["faults"], "review": dialogue["review"],
    }));
}
