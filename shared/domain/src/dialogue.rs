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

/// Version written into [`DialogueRecord::schema_version`].
pub const DIALOGUE_SCHEMA_VERSION: u32 = 1;

/// Whether `id` may name a dialogue record and so a file.
#[must_use]
pub fn is_record_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !id.starts_with('.')
}
