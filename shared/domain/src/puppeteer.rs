//! The puppeteer of a session: what it may tell the agent, how it decides, and what it decided.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a puppeteer finds what to inject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PuppeteerMode {
    /// A language model reads the conversation and chooses or words a fact.
    Llm,
    /// The fact that shares the most rare words with what was just said.
    #[default]
    Keywords,
    /// Only what the schedule says.
    Scheduled,
}

/// A text for one conversation frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledContext {
    /// Conversation frame from which it may go in (12.5 a second).
    pub frame: u64,
    /// What is injected.
    pub text: String,
}

/// A puppeteer for one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = SessionPuppeteer, example = json!({"mode": "keywords", "knowledge_base": "acme-renewals", "max_injections": 10}))]
pub struct PuppeteerSpec {
    /// How it decides beside the schedule.
    pub mode: PuppeteerMode,
    /// Id or name of a knowledge base.
    pub knowledge_base: Option<String>,
    /// Name of a lookup tool of the server's settings, asked beside the knowledge base.
    pub tool: Option<String>,
    /// What the language model is to watch for, at most 4,000 characters.
    #[schema(max_length = 4000)]
    pub instructions: Option<String>,
    /// Injections at most, 1 to 200.
    #[schema(minimum = 1, maximum = 200)]
    pub max_injections: u32,
    /// Seconds between two injections of its own at least, 0 to 600; the schedule is exempt.
    pub min_gap_s: f64,
    /// Texts for given frames, in any mode; at most 200.
    pub schedule: Vec<ScheduledContext>,
}

impl Default for PuppeteerSpec {
    fn default() -> Self {
        Self {
            mode: PuppeteerMode::default(),
            knowledge_base: None,
            tool: None,
            instructions: None,
            max_injections: 20,
            min_gap_s: 4.0,
            schedule: Vec::new(),
        }
    }
}

/// What became of one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PuppeteerOutcome {
    /// It waits in the session's queue; the session's injections tell the rest.
    Injected,
    /// Nothing was worth saying.
    Nothing,
    /// The agent knows it already.
    Duplicate,
    /// The limits of the session are reached.
    Capped,
    /// The session's queue refused it.
    Refused,
    /// The answer came too late or not at all.
    Failed,
}

impl PuppeteerOutcome {
    /// Name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Nothing => "nothing",
            Self::Duplicate => "duplicate",
            Self::Capped => "capped",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// One look at the conversation and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PuppeteerDecision {
    /// Conversation frame at which it looked.
    pub frame: u64,
    /// How it decided.
    pub mode: PuppeteerMode,
    /// What came of it.
    pub outcome: PuppeteerOutcome,
    /// Id of the injection, if there is one.
    pub injection_id: Option<String>,
    /// Facts it used.
    pub facts: Vec<String>,
    /// Why, in a word or a line; never what was said.
    pub reason: String,
    /// Milliseconds from the look to the decision.
    pub latency_ms: u64,
}
