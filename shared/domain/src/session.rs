//! Live conversations.

use serde::{Deserialize, Serialize};

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
pub enum ControlMessage {
    /// Inject this into the hidden text stream.
    Context {
        /// Fact or directive, without tags.
        text: String,
        /// Chosen by the client; repeats are ignored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// `pause` (default) waits until the agent is not speaking, `immediate` does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when: Option<ContextWhen>,
        /// Start at the latest after this many milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
    },
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
    /// It was not taken.
    #[serde(rename = "context.rejected")]
    ContextRejected {
        /// Item id.
        id: String,
        /// `queue_full`, `too_long`, `empty`, `tag_in_text`, `invalid_json`.
        code: String,
    },
    /// Sent once at the end.
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
}
