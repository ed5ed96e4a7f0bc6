//! `[gateway]` and `[auth]`; every key is explained in `configs/default.toml`.

use chassis::secrecy::SecretString;
use serde::Deserialize;

/// `[gateway]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySettings {
    /// Address of the public listener.
    pub bind: String,
    /// Its port; 0 = any.
    pub port: u16,
    /// Largest JSON body.
    pub max_json_bytes: usize,
    /// Largest archive that may be uploaded to be imported.
    pub max_upload_bytes: u64,
    /// Largest upload of a voice.
    pub max_voice_bytes: usize,
    /// Longest request target of `/api/chat`.
    pub max_chat_uri_bytes: usize,
    /// Longest request target elsewhere.
    pub max_uri_bytes: usize,
    /// Largest websocket message.
    pub max_message_bytes: usize,
    /// Foreign origins that may open a websocket.
    pub allowed_origins: Vec<String>,
    /// Silence after which a websocket client is gone.
    pub client_timeout_seconds: u64,
    /// First use of a ticket at the latest.
    pub ticket_ttl_seconds: i32,
    /// Where sessions go without a registry entry.
    pub inference_url: String,
    /// Time between comments on quiet event streams.
    pub sse_heartbeat_seconds: u64,
}

/// `[auth]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// Registered with every scope at start; empty = none.
    pub bootstrap_key: SecretString,
    /// Whether `/api/chat` opens without credentials.
    pub anonymous_chat: bool,
    /// Second part of new keys.
    pub key_environment: String,
    /// Wrong keys per minute and address.
    pub max_failures_per_minute: u32,
}
