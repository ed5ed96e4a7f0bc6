//! `[puppeteer]` of the settings.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use crate::http_lookup::ToolSettings;
use crate::llm_adviser::AdviceSettings;

/// `[puppeteer]`; `configs/default.toml` explains every key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PuppeteerSettings {
    /// Longest wait for an advice, milliseconds.
    pub deadline_ms: u64,
    /// Longest wait for a tool within it, milliseconds.
    pub tool_timeout_ms: u64,
    /// The language model that is asked in the mode `llm`.
    pub advice: AdviceSettings,
    /// Tools that sessions may name.
    pub tools: HashMap<String, ToolSettings>,
}

impl PuppeteerSettings {
    /// Longest wait for an advice.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Longest wait for a tool.
    #[must_use]
    pub const fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tool_timeout_ms)
    }
}
