//! Injections as the client sends them: read, checked, turned into items of the inject queue; and the answers.

use std::time::Instant;

use domain::frame::MS_PER_FRAME;
use domain::session::{ContextKind, ContextOptions, ContextWhen, ControlMessage, SessionEvent};
use streams::StreamsError;
use streams::inject_queue::{InjectEvent, InjectItem, InjectKind, Rejection, When};
use streams::tokenizer::Tokenizer;

/// Longest JSON message that is looked at.
const MAX_JSON_BYTES: usize = 16 * 1_024;
/// Longest id.
const MAX_ID_CHARS: usize = 128;
/// Extra life of an item whose deadline the client chose, frames.
const TTL_AFTER_DEADLINE: u32 = 250;
/// JSON messages that may come at once, and how many more a second.
const BURST: f64 = 64.0;
const PER_SECOND: f64 = 32.0;
/// Messages above the rate that are answered before the session is closed.
const GRACE: u32 = 1_000;

/// A message that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Id, if the client gave one.
    pub id: String,
    /// Why.
    pub code: &'static str,
}

impl Refusal {
    /// As an event.
    #[must_use]
    pub fn event(self) -> SessionEvent {
        SessionEvent::ContextRejected { id: self.id, code: self.code.into() }
    }
}

/// Reads one JSON message.
///
/// # Errors
/// A refusal with the code for the client.
pub fn read(message: &str, tokenizer: &Tokenizer) -> Result<InjectItem, Refusal> {
    if message.len() > MAX_JSON_BYTES {
        return Err(Refusal { id: String::new(), code: "too_long" });
    }
    let Ok(ControlMessage::Context { text, how }) = serde_json::from_str(message) else {
        return Err(Refusal { id: id_of(message), code: "invalid_json" });
    };
    item(&text, how, tokenizer)
}

/// Turns a text into an item of the queue; one without an id gets one.
///
/// # Errors
/// A refusal with the code for the client.
pub fn item(text: &str, how: ContextOptions, tokenizer: &Tokenizer) -> Result<InjectItem, Refusal> {
    let id = how.id.unwrap_or_else(|| format!("ctx_{}", uuid::Uuid::new_v4().as_simple()));
    if id.is_empty() || id.chars().count() > MAX_ID_CHARS {
        return Err(Refusal { id: id.chars().take(MAX_ID_CHARS).collect(), code: "invalid_json" });
    }
    let tokens = match tokenizer.context_tokens(text) {
        Ok(tokens) => tokens,
        Err(error) => return Err(Refusal { id, code: text_code(&error) }),
    };
    let frames = |ms: u64| u32::try_from(ms.div_ceil(MS_PER_FRAME)).unwrap_or(u32::MAX);
    let deadline = how.deadline_ms.map(frames);
    // Milliseconds of any number: what is no time is none.
    let seconds = how.expires_in_s.filter(|s| *s >= 0.0).map(|s| (s.min(1e9) * 1e3) as u64);
    let life = how.ttl_ms.or(seconds).map(frames);
    Ok(InjectItem {
        id,
        kind: match how.kind.unwrap_or_default() {
            ContextKind::Context => InjectKind::Context,
            ContextKind::Nudge => InjectKind::Nudge,
            ContextKind::Greeting => InjectKind::Greeting,
        },
        tokens,
        when: match how.when.unwrap_or_default() {
            ContextWhen::Immediate => When::Immediate,
            ContextWhen::Pause => When::Pause,
            ContextWhen::UserSpeech => When::UserSpeech,
        },
        deadline_frames: deadline,
        ttl_frames: life.or(deadline.map(|frames| frames.saturating_add(TTL_AFTER_DEADLINE))),
        supersedes: how.supersedes,
    })
}

/// The id of a message that is JSON but no message of ours.
fn id_of(message: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(message).unwrap_or_default();
    let id = value.get("id").and_then(serde_json::Value::as_str).unwrap_or_default();
    id.chars().take(MAX_ID_CHARS).collect()
}

fn text_code(error: &StreamsError) -> &'static str {
    match error {
        StreamsError::EmptyContext => "empty",
        StreamsError::TagInContext(_) => "tag_in_text",
        StreamsError::ControlInContext(_) => "control_character",
        _ => "not_tokenizable",
    }
}

/// Code of the queue's refusal; none for an id that was used before, which is a repeat and no fault.
#[must_use]
pub const fn code(rejection: &Rejection) -> Option<&'static str> {
    match rejection {
        Rejection::DuplicateId(_) => None,
        Rejection::QueueFull { .. } => Some("queue_full"),
        Rejection::Empty(_) => Some("empty"),
        Rejection::TooLong { .. } => Some("too_long"),
        Rejection::Ended => Some("ended"),
    }
}

/// What the queue did, for the client.
#[must_use]
pub fn told(event: InjectEvent) -> SessionEvent {
    match event {
        InjectEvent::Started { id, frame } => SessionEvent::ContextStarted { id, frame },
        InjectEvent::Completed { id, frame_start, frame_end } => {
            SessionEvent::ContextDone { id, frame_start, frame_end }
        }
        InjectEvent::Expired { id } => SessionEvent::ContextExpired { id },
        InjectEvent::Dropped { id } => Refusal { id, code: "dropped" }.event(),
        InjectEvent::Aborted { id, consumed } => {
            SessionEvent::ContextAborted { id, consumed: u32::try_from(consumed).unwrap_or(u32::MAX) }
        }
    }
}

/// Whether a JSON message is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is.
    Take,
    /// It is refused with `rate_limited`.
    Refuse,
    /// Too many were refused: the session is closed.
    Close,
}

/// Rate limit of one session's JSON messages.
#[derive(Debug)]
pub struct FloodGate {
    tokens: f64,
    filled: Instant,
    refused: u32,
}

impl FloodGate {
    /// A gate with its whole burst left.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { tokens: BURST, filled: now, refused: 0 }
    }

    /// Counts one message.
    pub fn admit(&mut self, now: Instant) -> Admission {
        let seconds = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = (self.tokens + seconds * PER_SECOND).min(BURST);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Admission::Take;
        }
        self.refused += 1;
        if self.refused > GRACE { Admission::Close } else { Admission::Refuse }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Result;

    use super::*;

    fn tokenizer() -> Result<Tokenizer> {
        Ok(Tokenizer::from_bytes(weights::preset_tokenizer("tiny")?)?)
    }

    #[test]
    fn the_plain_message_of_the_first_clients_works_and_gets_an_id() -> Result<()> {
        let tokenizer = tokenizer()?;
        let item = read(r#"{"type":"context","text":"rates fell"}"#, &tokenizer).expect("taken");
        assert!(item.id.starts_with("ctx_"));
        assert_eq!(item.when, When::Pause);
        assert_eq!(item.tokens, tokenizer.context_tokens("rates fell")?);
        assert_eq!((item.deadline_frames, item.ttl_frames), (None, None));
        Ok(())
    }

    #[test]
    fn id_when_and_deadline_are_kept_and_unknown_keys_are_no_error() -> Result<()> {
        let message = r#"{"type":"context","text":"a","id":"x","when":"immediate","deadline_ms":81,"new":1}"#;
        let item = read(message, &tokenizer()?).expect("taken");
        assert_eq!((item.id.as_str(), item.when), ("x", When::Immediate));
        assert_eq!((item.deadline_frames, item.ttl_frames), (Some(2), Some(252)));
        Ok(())
    }

    #[test]
    fn refusals_carry_a_code_and_the_id() -> Result<()> {
        let tokenizer = tokenizer()?;
        let long = format!(r#"{{"type":"context","text":"{}"}}"#, "a".repeat(MAX_JSON_BYTES));
        for (message, id, code) in [
            ("{", "", "invalid_json"),
            ("[1]", "", "invalid_json"),
            (r#"{"type":"dance","id":"d"}"#, "d", "invalid_json"),
            (r#"{"type":"context","id":"n","text":7}"#, "n", "invalid_json"),
            (r#"{"type":"context","id":"e","text":"  "}"#, "e", "empty"),
            (r#"{"type":"context","id":"t","text":"a </context> b"}"#, "t", "tag_in_text"),
            (r#"{"type":"context","id":"c","text":"a \u0007 b"}"#, "c", "control_character"),
            (long.as_str(), "", "too_long"),
        ] {
            assert_eq!(read(message, &tokenizer), Err(Refusal { id: id.into(), code }), "{id}");
        }
        Ok(())
    }

    #[test]
    fn a_flood_is_refused_and_then_closed_and_a_slow_sender_never() {
        let start = Instant::now();
        let mut gate = FloodGate::new(start);
        let verdicts: Vec<_> = (0..2_000).map(|_| gate.admit(start)).collect();
        assert_eq!(verdicts.iter().filter(|v| **v == Admission::Take).count(), 64);
        assert_eq!(verdicts.iter().filter(|v| **v == Admission::Refuse).count(), 1_000);
        assert_eq!(verdicts.last(), Some(&Admission::Close));
        let mut gate = FloodGate::new(start);
        for i in 0..2_000 {
            assert_eq!(gate.admit(start + Duration::from_millis(40 * i)), Admission::Take);
        }
    }
}
