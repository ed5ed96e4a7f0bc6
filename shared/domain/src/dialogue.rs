//! Generated dialogues: who says what, with the brief and the injections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::injection::Injection;

/// Who speaks. The published formats call them BROKER and CLIENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Speaker {
    /// The model's speaker; left audio channel, `Speaker 1` of a script.
    Agent,
    /// The other side; right audio channel, `Speaker 2` of a script.
    User,
}

impl Speaker {
    /// Label of a word in a published sidecar.
    #[must_use]
    pub const fn published_label(self) -> &'static str {
        match self {
            Self::Agent => "SPEAKER_BROKER",
            Self::User => "SPEAKER_CLIENT",
        }
    }
    /// Number in a script line, 1 or 2.
    #[must_use]
    pub const fn script_number(self) -> u32 {
        match self {
            Self::Agent => 1,
            Self::User => 2,
        }
    }
    /// Speaker of a script number.
    #[must_use]
    pub const fn from_script_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Agent),
            2 => Some(Self::User),
            _ => None,
        }
    }
}

/// One speaker's uninterrupted part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Position in the dialogue, from 0; injections refer to it.
    pub index: u32,
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said, as written.
    pub text: String,
}

/// Where in the sampling design a dialogue comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DesignRow {
    /// Hash of seed, size and axes.
    pub design_id: String,
    /// Row of the design.
    pub row: u32,
}

/// One dialogue as stored and exported (finetune.md 1.2, the variant we write).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DialogueRecord {
    /// `^[A-Za-z0-9._-]{1,64}$`, unique in its dataset.
    pub id: String,
    /// Version of this shape.
    pub schema_version: u32,
    /// Domain pack id.
    pub domain: String,
    /// The brief: labelled lines ROLE, CLIENT, …, STYLE, without tags.
    pub text_prompt: String,
    /// The turns in order.
    pub turns: Vec<Turn>,
    /// Context to inject, sorted by turn.
    pub context_injections: Vec<Injection>,
    /// Axis name to value id.
    pub seed: BTreeMap<String, String>,
    /// Where the row comes from.
    pub design: DesignRow,
    /// Generator model; `offline-grammar` for the deterministic one.
    pub model: String,
    /// Cost in millionths of a dollar.
    pub cost_microusd: u64,
}

/// Where a dialogue stands between being written and being spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DialogueStatus {
    /// Keeps every rule; nobody has looked at it.
    Valid,
    /// Breaks rules; kept so that it can be seen and repaired.
    Invalid,
    /// A person said yes.
    Approved,
    /// A person said no.
    Rejected,
}

impl DialogueStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Valid, Self::Invalid, Self::Approved, Self::Rejected];

    /// Name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Invalid => "invalid",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    /// Whether such a dialogue is rendered and published.
    #[must_use]
    pub const fn is_built(self, approved_only: bool) -> bool {
        match self {
            Self::Approved => true,
            Self::Valid => !approved_only,
            Self::Invalid | Self::Rejected => false,
        }
    }
}

impl std::str::FromStr for DialogueStatus {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no status; there are valid, invalid, approved and rejected"))
    }
}

macro_rules! fault_codes {
    ($($name:ident: $title:literal,)*) => {
        /// Stable code of a rule for records (finetune.md 2.4).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        pub enum FaultCode { $(#[doc = $title] $name,)* }
        impl FaultCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            /// `V01` and so on.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
            /// What the rule is about.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

fault_codes! {
    V01: "number and order of turns",
    V02: "alternation of the speakers",
    V03: "texts that can be spoken",
    V04: "places of injections",
    V05: "number and length of injections",
    V06: "injections while the user speaks or after a hedge",
    V07: "sections of the brief",
    V08: "grounding of what the agent states",
    V09: "the outcome that was asked for",
    V10: "likeness to another dialogue",
    V11: "personal data",
    V12: "a whole answer of the writing model",
    V13: "what the domain must and must not say",
}

impl std::fmt::Display for FaultCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for FaultCode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no code of a rule; there are V01 to V13"))
    }
}

/// A rule that a record breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RecordFault {
    /// Which.
    pub code: FaultCode,
    /// Where, and what was expected.
    #[schema(example = "turn 7 states $13,100, which nothing before it holds")]
    pub detail: String,
}

/// What a person decided about a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Review {
    /// Name of the API key that decided.
    pub by: String,
    /// Why; always there for a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub at: chrono::DateTime<chrono::Utc>,
}

/// Version written into [`DialogueRecord::schema_version`].
pub const DIALOGUE_SCHEMA_VERSION: u32 = 1;

/// Whether `id` may name a dialogue record and so a file.
#[must_use]
pub fn is_record_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !id.starts_with('.')
}
