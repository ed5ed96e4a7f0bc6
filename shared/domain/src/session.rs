//! Live conversations.

use serde::{Deserialize, Serialize};

use crate::SessionId;
use crate::puppeteer::PuppeteerSpec;

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A ticket was given; no socket yet.
    Created,
    /// A socket is open.
    Live,
    /// Over.
    Ended,
}

impl SessionState {
    /// Name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Live => "live",
            Self::Ended => "ended",
        }
    }
}

impl std::str::FromStr for SessionState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Created, Self::Live, Self::Ended]
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no session state"))
    }
}

/// How tokens are drawn; temperature 0 means greedy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// 0 to 1.5.
    pub text_temperature: f64,
    /// 1 to 500.
    pub text_topk: u32,
    /// 0 to 1.5.
    pub audio_temperature: f64,
    /// 1 to 2048.
    pub audio_topk: u32,
    /// Seed of the session's generator; a random one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    /// PersonaPlex's own defaults (personaplex.md 1.7).
    fn default() -> Self {
        Self { text_temperature: 0.7, text_topk: 25, audio_temperature: 0.8, audio_topk: 250, seed: None }
    }
}

/// How a session's frames are paced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionPace {
    /// A frame every 80 ms, whether or not the user sends audio: what a person wants.
    #[default]
    Realtime,
    /// A frame for every frame of audio, as fast as they come: for files, evaluation and tests.
    Audio,
}

/// Choices of one session beside model, voice, brief and sampling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionOptions {
    /// The clock.
    pub pace: SessionPace,
    /// Who injects beside the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puppeteer: Option<PuppeteerSpec>,
}

/// Client text frame on the live socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(example = json!({"type": "context", "text": "The premium is 42 euros.", "id": "c1", "when": "pause"}))]
pub enum ControlMessage {
    /// Inject this into the hidden text stream.
    Context {
        /// Fact or directive, without tags.
        text: String,
        /// Id, time and urgency.
        #[serde(flatten)]
        how: ContextOptions,
    },
}

/// How a text is injected; everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct ContextOptions {
    /// Chosen by the client; repeats are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it is for, and so what goes first: `context` (default), then `nudge`, then `greeting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ContextKind>,
    /// `pause` (default) waits until the agent is not speaking, `user_speech` until the user speaks too, `immediate` for
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<ContextWhen>,
    /// Start at the latest after this many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Not started after this many milliseconds it is stale and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The same in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<f64>,
    /// Id of a text that still waits and is dropped for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<String>,
}

/// What an injection is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContextKind {
    /// A fact or directive.
    #[default]
    Context,
    /// A hidden cue to break a silence.
    Nudge,
    /// A hidden cue to open the conversation.
    Greeting,
}

/// When an injection may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContextWhen {
    /// When the agent is not speaking, or at the deadline.
    #[default]
    Pause,
    /// At the next frame.
    Immediate,
    /// When the user speaks and the agent does not, or at the deadline.
    UserSpeech,
}

/// Server event, sent as kind 0x04 JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type")]
pub enum SessionEvent {
    /// The item waits.
    #[serde(rename = "context.queued")]
    ContextQueued {
        /// Item id.
        id: String,
        /// Tokens including both tags: one frame each.
        tokens: u32,
    },
    /// Its first token went in.
    #[serde(rename = "context.started")]
    ContextStarted {
        /// Item id.
        id: String,
        /// First conversation frame.
        frame: u64,
    },
    /// Its last token went in.
    #[serde(rename = "context.done")]
    ContextDone {
        /// Item id.
        id: String,
        /// First conversation frame.
        frame_start: u64,
        /// One past the last conversation frame.
        frame_end: u64,
    },
    /// It was not taken, or gave way to another one.
    #[serde(rename = "context.rejected")]
    ContextRejected {
        /// Item id.
        id: String,
        /// `queue_full`, `too_long`, `empty`, `tag_in_text`, `invalid_json`, .., `dropped`.
        code: String,
    },
    /// It waited longer than its time to live.
    #[serde(rename = "context.expired")]
    ContextExpired {
        /// Item id.
        id: String,
    },
    /// The session ended before it was done.
    #[serde(rename = "context.aborted")]
    ContextAborted {
        /// Item id.
        id: String,
        /// Tokens that had gone in.
        consumed: u32,
    },
    /// The conversation can begin.
    #[serde(rename = "session.created")]
    Created {
        /// The session.
        id: SessionId,
        /// An interrupted conversation goes on.
        resumed: bool,
    },
    /// What the agent said in a frame.
    #[serde(rename = "transcript.delta")]
    Transcript {
        /// Conversation frame.
        frame: u64,
        /// Piece of text, spaces included.
        text: String,
    },
    /// The window was filled anew: older parts of the conversation are forgotten.
    #[serde(rename = "session.refreshed")]
    Refreshed {
        /// Rows that the model still sees.
        rows: u64,
    },
    /// The session is about to end.
    #[serde(rename = "session.closing")]
    Closing {
        /// Why.
        reason: String,
        /// Conversation frame of the end.
        at_frame: u64,
    },
    /// A message could not be understood.
    #[serde(rename = "error")]
    Error {
        /// `invalid_json`, `rate_limited`, ..
        code: String,
        /// What was wrong.
        message: String,
    },
    /// Sent every five seconds and at the end.
    #[serde(rename = "session.stats")]
    Stats(SessionStats),
}

/// Measured facts of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionStats {
    /// Conversation frames decided.
    pub frames: u64,
    /// Frames of hidden context.
    pub hidden_frames: u64,
    /// Median milliseconds to compute one frame (codec, model, codec).
    pub frame_ms_p50: f64,
    /// 99th percentile.
    pub frame_ms_p99: f64,
    /// Longest.
    pub frame_ms_max: f64,
    /// Frames that took longer than 80 ms.
    pub late_frames: u64,
    /// Milliseconds from open to handshake.
    pub ready_ms: f64,
    /// Ogg pages that could not be decoded.
    pub bad_pages: u64,
    /// Milliseconds of user audio dropped because the client sent faster than bounds allow.
    pub dropped_ms: u64,
    /// Frames for which nothing came from the user in time and silence was fed.
    #[serde(default)]
    pub absent_frames: u64,
    /// Share of frames in which the agent's text is padding; frames of hidden context do not count.
    #[serde(default)]
    pub pad_silence_share: f64,
    /// Share of frames in which the agent's sound is below -45 dBFS; frames of hidden context do not count.
    #[serde(default)]
    pub energy_silence_share: f64,
}
