//! One dialogue as a live session through the gateway.

use std::time::Duration;

use chassis::JobError;
use client::chat::{ChatOptions, Conversation, Pace};
use client::views::NewSession;
use client::{Client, ClientError};
use domain::session::{SamplingParams, SessionPace, SessionState, SessionStats};
use domain::{ErrorCode, ModelId, SessionId};

use crate::scenario::Scenario;

/// What a played dialogue left.
#[derive(Debug)]
pub(crate) struct Played {
    pub session: SessionId,
    pub conversation: Conversation,
    pub stats: SessionStats,
}

/// Holds the session and waits for its stats.
pub(crate) async fn play(
    client: &Client,
    model: ModelId,
    scenario: &Scenario,
    seed: u64,
) -> Result<Played, ClientError> {
    let session = client
        .create_session(&NewSession {
            model: model.to_string(),
            voice: scenario.voice.clone(),
            text_prompt: Some(scenario.text_prompt.clone()),
            sampling: Some(SamplingParams { seed: Some(seed), ..SamplingParams::default() }),
            // Everything counts frames, so the clock on the wall does not matter.
            pace: SessionPace::Audio,
        })
        .await?;
    let options =
        ChatOptions { injections: scenario.injections.clone(), pace: Pace::FAST, ..ChatOptions::default() };
    let socket = client.socket_url(&session)?;
    let conversation = Box::pin(client.converse(&socket, scenario.user.clone(), &options)).await?;
    let stats = match conversation.stats.clone() {
        Some(stats) => stats,
        None => stored_stats(client, session.id).await?,
    };
    Ok(Played { session: session.id, conversation, stats })
}

/// The stats of the session's row, which is written just after the socket is closed.
async fn stored_stats(client: &Client, id: SessionId) -> Result<SessionStats, ClientError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let ended = async {
        loop {
            let session = client.session(id).await?;
            match (session.state, session.stats) {
                (SessionState::Ended, Some(stats)) => return Ok(stats),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended)
        .await
        .map_err(|_| ClientError::TimedOut { what: format!("the end of {id}"), after: PATIENCE })?
}

/// A failed session as a failed job: worth another try unless the request itself was refused.
pub(crate) fn job_error(dialogue: &str, error: &ClientError) -> JobError {
    let detail = format!("{dialogue}: {error}");
    match error {
        ClientError::Problem(problem) if problem.status < 500 && problem.status != 429 => {
            JobError::permanent(ErrorCode::SessionFailed, detail)
        }
        ClientError::Audio(_)
        | ClientError::Usage(_)
        | ClientError::Shape { .. }
        | ClientError::BadUrl { .. } => JobError::permanent(ErrorCode::SessionFailed, detail),
        _ => JobError::transient(ErrorCode::SessionFailed, detail),
    }
}
