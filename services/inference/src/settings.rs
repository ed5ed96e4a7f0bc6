//! `[inference]` of the settings.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use streams::inject_queue::QueueLimits;

use crate::engine::{Absent, Pace, WindowPolicy};

/// `[inference].absent_user`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsentUser {
    /// Silence is fed in its place.
    Silence,
    /// The conversation stands still.
    Wait,
}

/// `[inference]`; `configs/default.toml` explains every key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceSettings {
    /// Address of the internal listener.
    pub bind: String,
    /// Its port; 0 = any.
    pub port: u16,
    /// How other services reach it; empty = from the listener's address.
    pub advertise_url: String,
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// `f32` or `bf16`.
    pub dtype: String,
    /// Refuse a model whose codec gives other codes for silence and the marker tone than its configuration.
    pub strict_constants: bool,
    /// Threads of one model step on the CPU; 0 = all cores.
    pub threads: usize,
    /// Sessions at once.
    pub max_sessions: usize,
    /// `silence` or `wait`: what a conversation on the clock does when its user sends nothing in time.
    pub absent_user: AbsentUser,
    /// Frames that may come late before the user counts as absent.
    pub late_frames: u32,
    /// What happens when a conversation has filled its window.
    pub window_policy: WindowPolicy,
    /// Rows of a conversation; 0 = the model's window.
    pub cache_rows: usize,
    /// Newest rows that a fresh window starts with, behind the prompt.
    pub refresh_rows: usize,
    /// Memory for prompts kept per model, MiB.
    pub prefix_cache_mb: usize,
    /// Models kept loaded.
    pub max_models: usize,
    /// Memory that all models may take, MiB; 0 = what the device has.
    pub memory_limit_mb: u64,
    /// Early audio kept, seconds.
    pub max_early_audio_seconds: u64,
    /// Patience with a silent client, seconds.
    pub idle_seconds: u64,
    /// Longest session, seconds.
    pub max_session_seconds: u64,
    /// Tokens of one injection, tags included.
    pub max_context_tokens: usize,
    /// Injections waiting in one session.
    pub max_context_queue: usize,
}

impl InferenceSettings {
    /// URL put into the registry for a listener at `address`.
    #[must_use]
    pub fn advertised(&self, address: SocketAddr) -> String {
        if self.advertise_url.is_empty() { format!("http://{address}") } else { self.advertise_url.clone() }
    }

    /// Bounds of a session's inject queue.
    #[must_use]
    pub fn queue_limits(&self) -> QueueLimits {
        QueueLimits {
            max_items: self.max_context_queue,
            max_item_tokens: self.max_context_tokens,
            ..QueueLimits::default()
        }
    }

    /// Rows of a conversation, if they are fewer than the model's window.
    #[must_use]
    pub fn rows(&self) -> Option<usize> {
        (self.cache_rows > 0).then_some(self.cache_rows)
    }

    /// Bytes that all models may take, if that is limited.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        (self.memory_limit_mb > 0).then_some(self.memory_limit_mb << 20)
    }

    /// The pace of a live call.
    #[must_use]
    pub const fn realtime(&self) -> Pace {
        let absent = match self.absent_user {
            AbsentUser::Silence => Absent::Silence,
            AbsentUser::Wait => Absent::Wait,
        };
        Pace::Realtime { absent }
    }

    /// Time without a client frame after which a session ends.
    #[must_use]
    pub const fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    /// Longest session.
    #[must_use]
    pub const fn max_session(&self) -> Duration {
        Duration::from_secs(self.max_session_seconds)
    }
}
