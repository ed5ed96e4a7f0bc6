//! `ppx domain new`: a pack drafted by a writing model.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use llm::{ChatRequest, Message, ProviderSettings, Role};
use serde_json::{Value, json};

use client::{ClientError, Result};
use domain::pack::DomainPack;
use drafting::bootstrap;

use super::super::Context;
use super::file_error;

/// Longest answer, in tokens: a whole pack.
const MAX_TOKENS: u32 = 32_000;
/// Longest wait for an answer, all tries included.
const DEADLINE: Duration = Duration::from_secs(1_200);

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("writer").required(true).args(["model", "with"])))]
pub(crate) struct NewArgs {
    /// What the calls are about, in a sentence or two.
    description: String,
    /// Id of the new domain.
    #[arg(long)]
    id: String,
    /// Model to ask.
    #[arg(long)]
    model: Option<String>,
    /// API that the model is reached by.
    #[arg(long, value_enum, default_value = "anthropic")]
    provider: Provider,
    /// Address of that API, without `/v1`.
    #[arg(long, value_name = "URL", default_value = "https://api.anthropic.com")]
    provider_url: String,
    /// Key of that API.
    #[arg(long, env = "PPX_LLM_KEY", hide_env_values = true, default_value = "", hide_default_value = true)]
    provider_key: String,
    /// Instead of a model a command: it gets the prompt on stdin and prints the answer.
    #[arg(long, value_name = "COMMAND")]
    with: Option<String>,
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

/// APIs of writing models.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Provider {
    /// Anthropic's Messages.
    Anthropic,
    /// Chat completions, as many servers have them.
    Openai,
}

pub(crate) async fn draft(args: NewArgs, context: &Context) -> Result<()> {
    if args.out.exists() {
        return Err(ClientError::Usage(format!("{} exists already", args.out.display())));
    }
    let writer = Writer::new(&args)?;
    let mut talk = vec![said(Role::User, bootstrap::request(&args.id, &args.description))];
    for round in 1..=args.rounds {
        context.out.note(&format!("round {round} of {}: asking the model", args.rounds));
        let answer = writer.ask(&talk).await?;
        match bootstrap::read(&args.id, &answer) {
            Ok(pack) => return keep(&pack, &args, context).await,
            Err(faults) => {
                let told = bootstrap::repair(&faults);
                context.out.note(&told);
                talk.extend([said(Role::Assistant, answer), said(Role::User, told)]);
            }
        }
    }
    Err(ClientError::Usage(format!("the model gave no valid pack in {} rounds", args.rounds)))
}

fn said(role: Role, text: String) -> Message {
    Message { role, text }
}

async fn keep(pack: &DomainPack, args: &NewArgs, context: &Context) -> Result<()> {
    let text = serde_json::to_string_pretty(pack).unwrap_or_default();
    let mut file = std::fs::File::create_new(&args.out).map_err(file_error(&args.out))?;
    file.write_all(text.as_bytes()).map_err(file_error(&args.out))?;
    if args.add {
        context.client()?.add_domain(pack).await?;
    }
    let shown: Value = json!({ "id": pack.id, "version": pack.version, "state": "draft", "file": args.out, "is_stored": args.add });
    context.out.show(&shown);
    context.out.note("A person has to read it; then: ppx domain add FILE, ppx domain activate ID@VERSION");
    Ok(())
}

/// Who answers.
enum Writer {
    Model(Box<llm::Client>, String),
    Command(String),
}

impl Writer {
    fn new(args: &NewArgs) -> Result<Self> {
        let Some(model) = &args.model else {
            return Ok(Self::Command(args.with.clone().unwrap_or_default()));
        };
        let kind = match args.provider {
            Provider::Anthropic => "anthropic",
            Provider::Openai => "openai",
        };
        let settings: ProviderSettings = serde_json::from_value(json!({
            "kind": kind, "base_url": args.provider_url, "api_key": args.provider_key, "concurrency": 1,
            "max_concurrency": 1, "tries": 4, "total_retry_seconds": 300, "connect_seconds": 10, "idle_seconds": 60,
            "call_seconds": 600,
        }))
        .map_err(|error| ClientError::Usage(error.to_string()))?;
        let client = llm::Client::new(&settings).map_err(|error| ClientError::Usage(error.to_string()))?;
        Ok(Self::Model(Box::new(client), model.clone()))
    }

    async fn ask(&self, talk: &[Message]) -> Result<String> {
        match self {
            Self::Model(client, model) => {
                let request = ChatRequest {
                    messages: talk.to_vec(),
                    ..ChatRequest::text(model, bootstrap::system(), "", MAX_TOKENS)
                };
                let answer = client.complete(&request, DEADLINE).await;
                answer.map(|a| a.text).map_err(|error| ClientError::Usage(error.to_string()))
            }
            Self::Command(command) => {
                let mut prompt = bootstrap::system();
                for message in talk {
                    prompt.push_str("\n\n");
                    prompt.push_str(&message.text);
                }
                run(command, prompt)
            }
        }
    }
}

/// What the command prints.
fn run(command: &str, prompt: String) -> Result<String> {
    let failed = |detail: String| ClientError::Usage(format!("{command:?}: {detail}"));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let mut stdin = child.stdin.take().ok_or_else(|| failed("has no standard input".into()))?;
    // Beside the reading below: a command may answer before it has read everything.
    let feeding = std::thread::spawn(move || stdin.write_all(prompt.as_bytes()));
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    let _ = feeding.join();
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| failed("its answer is not UTF-8".into()))
}
