//! Live conversations: play a waveform to the model, send context at given frames, collect what comes back.
//!
//! All positions count conversation frames of 80 ms from the first user frame; user and agent share this clock, since the
//! server answers every user frame with one agent frame. The decoded agent sound starts about 6 ms late (the codec's
//! look-ahead), which no frame-wise number notices.

mod receive;
mod send;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, http::header::AUTHORIZATION};
use url::Url;

use audio::Waveform;
use audio::opus::OpusStats;
use domain::frame::{SAMPLE_RATE, SAMPLES_PER_FRAME};
use domain::session::{ContextWhen, SessionEvent, SessionStats};

use crate::error::{ClientError, Problem, Result};
use crate::http::Client;
use receive::Received;

/// Kind bytes of binary messages (personaplex.md 4.1).
mod kind {
    pub const HANDSHAKE: u8 = 0x00;
    pub const AUDIO: u8 = 0x01;
    pub const TEXT: u8 = 0x02;
    pub const CONTROL: u8 = 0x03;
    pub const METADATA: u8 = 0x04;
    pub const ERROR: u8 = 0x05;
    /// Second byte of a control message: no more user audio.
    pub const END_TURN: u8 = 0x01;
}

/// Context for a frame of the conversation; a line of an injection file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectAt {
    /// Conversation frame with which it begins, when it need not wait; 0 is too early and begins with 1.
    pub frame: u64,
    /// Fact or directive, without tags.
    pub text: String,
    /// `immediate` goes in at the next frame, `pause` waits until the agent is not speaking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<ContextWhen>,
    /// Start at the latest after this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// How fast user frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// One frame every 80 ms, as a person speaks.
    RealTime,
    /// As fast as the server answers, with at most this many frames under way.
    Fast {
        /// Frames sent and not yet answered.
        lead: u64,
    },
}

impl Pace {
    /// Fast with a lead of two seconds.
    pub const FAST: Self = Self::Fast { lead: 25 };
}

/// What to say and how.
#[derive(Debug, Clone)]
pub struct ChatOptions {
    /// Context by frame; in order of frames.
    pub injections: Vec<InjectAt>,
    /// How fast.
    pub pace: Pace,
    /// Longest wait for the handshake, which comes after the prompt is in.
    pub ready_timeout: Duration,
    /// Longest silence of the server while frames are under way.
    pub stall_timeout: Duration,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            injections: Vec::new(),
            pace: Pace::RealTime,
            ready_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// A piece of the agent's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPiece {
    /// Agent frames that were complete when it came.
    pub frame: u64,
    /// As sent; begins with a space where a word begins.
    pub text: String,
}

/// A server event with the frame at which it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventAt {
    /// Agent frames that were complete when it came.
    pub frame: u64,
    /// The event.
    pub event: SessionEvent,
}

/// All of a finished conversation.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// What was played, whole frames of 24 kHz mono.
    pub user: Vec<f32>,
    /// What came back, cut or filled with silence to the length of `user`.
    pub agent: Vec<f32>,
    /// Agent frames that really came.
    pub agent_frames: u64,
    /// Text pieces in order.
    pub texts: Vec<TextPiece>,
    /// Events of the server, without the final stats.
    pub events: Vec<EventAt>,
    /// Measured by the server; only sent when context was sent, else read them from the session.
    pub stats: Option<SessionStats>,
    /// Milliseconds from the open socket to the handshake.
    pub ready_ms: f64,
    /// Seconds from the handshake to the close.
    pub wall_s: f64,
    /// What the decoder met.
    pub opus: OpusStats,
}

impl Conversation {
    /// All text, as a reader would see it.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.texts.iter().map(|t| t.text.as_str()).collect::<String>().trim().to_owned()
    }

    /// Both sides as a recording at 24 kHz: left the agent, right the user.
    #[must_use]
    pub fn stereo(&self) -> Waveform {
        Waveform::stereo(SAMPLE_RATE, self.agent.clone(), self.user.clone())
    }

    /// Half-open ranges of conversation frames whose text was hidden context; one that the end cut off ends there.
    #[must_use]
    pub fn hidden_spans(&self) -> Vec<(u64, u64)> {
        let end_of = |wanted: &str| {
            self.events.iter().find_map(|e| match &e.event {
                SessionEvent::ContextDone { id, frame_end, .. } if id == wanted => Some(*frame_end),
                _ => None,
            })
        };
        let span = |e: &EventAt| match &e.event {
            SessionEvent::ContextStarted { id, frame } => {
                Some((*frame, end_of(id).unwrap_or(self.agent_frames.max(*frame))))
            }
            _ => None,
        };
        self.events.iter().filter_map(span).collect()
    }

    /// Codes of the injections that the server refused.
    #[must_use]
    pub fn rejections(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|e| match &e.event {
                SessionEvent::ContextRejected { code, .. } => Some(code.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Text pieces that came while context was hidden: 0 unless the server leaks it. The outermost frame on either side is
    /// not counted, since a piece and its frame are two messages.
    #[must_use]
    pub fn pieces_while_hidden(&self) -> usize {
        let spans = self.hidden_spans();
        let inside = |frame: u64| spans.iter().any(|&(start, end)| frame > start + 1 && frame + 1 < end);
        self.texts.iter().filter(|piece| inside(piece.frame)).count()
    }
}

/// A waveform of any rate and one or two channels as whole frames of 24 kHz mono.
///
/// # Errors
/// When the rate is not one of speech.
pub fn to_frames(waveform: &Waveform) -> Result<Vec<f32>> {
    let mono = if waveform.channels.len() > 1 { waveform.mix_down() } else { waveform.clone() };
    let mut samples = audio::resample::to_house_rate(&mono)?.channels.into_iter().next().unwrap_or_default();
    samples.resize(samples.len().next_multiple_of(SAMPLES_PER_FRAME), 0.0);
    Ok(samples)
}

impl Client {
    /// Holds the conversation at `socket` (see [`Client::socket_url`]): plays `user` (whole frames of 24 kHz mono, see
    /// [`to_frames`]) and returns when the server has closed.
    ///
    /// # Errors
    /// A refused upgrade is a `Problem`; `TimedOut`, `SessionClosed`, `Socket`; see [`ClientError`].
    pub async fn converse(
        &self,
        socket: &Url,
        user: Vec<f32>,
        options: &ChatOptions,
    ) -> Result<Conversation> {
        let stream = self.connect(socket).await?;
        let opened = Instant::now();
        let heard = hold(stream, &user, options).await?;
        let ready = heard.ready.ok_or_else(|| ClientError::Socket("closed before the handshake".into()))?;
        let mut agent = heard.pcm;
        let agent_frames = (agent.len() / SAMPLES_PER_FRAME) as u64;
        agent.resize(user.len(), 0.0);
        Ok(Conversation {
            user,
            agent,
            agent_frames,
            texts: heard.texts,
            events: heard.events,
            stats: heard.stats,
            ready_ms: ready.duration_since(opened).as_secs_f64() * 1000.0,
            wall_s: ready.elapsed().as_secs_f64(),
            opus: heard.opus,
        })
    }

    async fn connect(&self, socket: &Url) -> Result<send::Socket> {
        let mut request =
            socket.as_str().into_client_request().map_err(|_| ClientError::BadUrl { url: redact(socket) })?;
        // A ticket is credentials enough; the key goes along only without one.
        if let (Some(value), None) = (self.authorization(), socket.query()) {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((stream, _)) => Ok(stream),
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(ClientError::Problem(Box::new(Problem::from_body(response.status().as_u16(), body))))
            }
            Err(error) => Err(ClientError::Unreachable { url: redact(socket), detail: error.to_string() }),
        }
    }
}

/// Sends and receives side by side until the server has closed.
async fn hold(stream: send::Socket, user: &[f32], options: &ChatOptions) -> Result<receive::Heard> {
    let (sink, stream) = futures::StreamExt::split(stream);
    let (progress, seen) = watch::channel(Received::default());
    let sending = send::Sender { sink, seen, options }.run(user);
    let receiving = receive::Receiver::new(stream, progress)?.run(options);
    tokio::pin!(sending, receiving);
    tokio::select! {
        heard = &mut receiving => heard,
        sent = &mut sending => {
            sent?;
            receiving.await
        }
    }
}

/// The address without its query: a ticket must not reach a log.
fn redact(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}
