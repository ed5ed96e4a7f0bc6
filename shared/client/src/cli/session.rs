//! `ppx session`

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use audio::WavLimits;
use client::chat::{ChatOptions, Conversation, InjectAt, Pace, to_frames};
use client::views::{NewSession, SessionView};
use client::{Client, ClientError, Result};
use domain::session::{SamplingParams, SessionPace, SessionState};

use super::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Play a WAV to a model and record the conversation.
    Talk(Box<TalkArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct TalkArgs {
    /// Id or name of the model.
    #[arg(long)]
    model: String,
    /// What the user says: a WAV of any rate, at most one hour.
    #[arg(long)]
    wav: PathBuf,
    /// Where to write the conversation: stereo, left the agent, right the user.
    #[arg(long)]
    out: PathBuf,
    /// Context to inject: a JSON line {"frame":N,"text":"…"} for each, optional "when" and "deadline_ms".
    #[arg(long, value_name = "JSONL")]
    inject: Option<PathBuf>,
    /// Registered voice of the agent.
    #[arg(long)]
    voice: Option<String>,
    /// The brief, without tags.
    #[arg(long)]
    text_prompt: Option<String>,
    /// Seed of the sampling.
    #[arg(long)]
    seed: Option<u64>,
    /// Take the most likely token each time.
    #[arg(long)]
    greedy: bool,
    /// As fast as the server answers, instead of in real time.
    #[arg(long)]
    fast: bool,
    /// Where to write text pieces, events and stats.
    #[arg(long, value_name = "JSON")]
    transcript: Option<PathBuf>,
}

/// What one conversation left.
pub(crate) struct Talked {
    pub session: SessionView,
    pub conversation: Conversation,
}

pub(crate) async fn run(command: SessionCommand, context: &Context) -> Result<()> {
    let SessionCommand::Talk(args) = command;
    let client = context.client()?;
    let waveform = audio::wav::read(&args.wav, &WavLimits::default())?;
    let injections = args.inject.as_deref().map(read_injections).transpose()?.unwrap_or_default();
    let greedy = if args.greedy { 0.0 } else { 1.0 };
    let defaults = SamplingParams::default();
    let sampling = SamplingParams {
        text_temperature: defaults.text_temperature * greedy,
        audio_temperature: defaults.audio_temperature * greedy,
        seed: args.seed,
        ..defaults
    };
    let new = NewSession {
        model: args.model.clone(),
        voice: args.voice.clone(),
        text_prompt: args.text_prompt.clone(),
        sampling: Some(sampling),
        pace: if args.fast { SessionPace::Audio } else { SessionPace::Realtime },
    };
    let options = ChatOptions {
        injections,
        pace: if args.fast { Pace::FAST } else { Pace::RealTime },
        ..ChatOptions::default()
    };
    let talked = talk(&client, &new, to_frames(&waveform)?, &options).await?;
    audio::wav::write_pcm16(&args.out, &talked.conversation.stereo())?;
    let report = report(&talked);
    if let Some(path) = &args.transcript {
        write(path, format!("{report:#}\n").as_bytes())?;
    }
    let mut shown = report;
    if !context.out.is_json() {
        let texts = shown["texts"].as_array().map_or(0, Vec::len);
        shown["texts"] = json!(texts);
    }
    context.out.show(&shown);
    Ok(())
}

/// Opens a session, holds it, and reads its stats.
pub(crate) async fn talk(
    client: &Client,
    new: &NewSession,
    user: Vec<f32>,
    options: &ChatOptions,
) -> Result<Talked> {
    let session = client.create_session(new).await?;
    let mut conversation = Box::pin(client.converse(&client.socket_url(&session)?, user, options)).await?;
    // The row is written when the socket is closed: a moment later.
    let mut stored = client.session(session.id).await?;
    for _ in 0..25 {
        if stored.state == SessionState::Ended {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        stored = client.session(session.id).await?;
    }
    if conversation.stats.is_none() {
        conversation.stats = stored.stats.clone();
    }
    Ok(Talked { session: stored, conversation })
}

/// The facts of a conversation as one document.
pub(crate) fn report(talked: &Talked) -> Value {
    let conversation = &talked.conversation;
    json!({
        "session_id": talked.session.id,
        "frames": conversation.agent_frames,
        "ready_ms": conversation.ready_ms,
        "wall_s": conversation.wall_s,
        "transcript": conversation.transcript(),
        "texts": conversation.texts,
        "events": conversation.events,
        "stats": conversation.stats,
    })
}

fn read_injections(path: &Path) -> Result<Vec<InjectAt>> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| ClientError::File { path: file.clone(), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|e| ClientError::Usage(format!("{file}:{}: {e}", number + 1)))
        })
        .collect()
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = |source| ClientError::File { path: path.display().to_string(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(file)?;
    }
    std::fs::write(path, bytes).map_err(file)
}
