//! Domain packs: everything that makes a dataset about one subject, as data (finetune.md 2.2).
//!
//! A pack names the axes of the sampling design, the shape of a call, the rules for injections and the phrases that the
//! offline generator speaks. Reading one reports every fault with a pointer, not only the first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dialogue::Speaker;
use crate::run::FieldFault;

mod check;
mod grammar;
mod parse;
mod schema;
mod template;

pub use grammar::*;
pub use template::{Piece, pieces, slot_names};

/// Axis whose value is the way the call ends.
pub const OUTCOME_AXIS: &str = "outcome";
/// Axis whose value is the number of injections.
pub const INJECTION_AXIS: &str = "injection_count";
/// Axes of every design.
pub const AXES: usize = 8;

/// A pack that passed every check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainPack {
    /// `^[a-z][a-z0-9_]*$`
    pub id: String,
    /// Counted up with every change of content.
    pub version: u32,
    /// Start of every record id, `^[a-z][a-z0-9]{1,7}$`.
    pub short: String,
    /// For people.
    pub title: String,
    /// Who speaks.
    pub roles: Roles,
    /// Shape of the call.
    pub call: Call,
    /// Labelled lines of the brief, in order.
    pub prompt_sections: Vec<String>,
    /// Numbers of facts in the brief.
    pub sections: FactSections,
    /// The eight axes.
    pub axes: Vec<Axis>,
    /// Pairs of axes that are allocated together, so that every combination gets its share.
    pub joint: Vec<[String; 2]>,
    /// Combinations that no dialogue has: a row on which every axis named has one of the levels named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<When>,
    /// Rules for injections.
    pub injections: InjectionRules,
    /// What the agent has to say and must not say.
    pub compliance: Compliance,
    /// Kinds of claims that grounding looks at.
    pub claim_patterns: Vec<String>,
    /// Phrases of the offline generator.
    pub grammar: Grammar,
}

/// Both sides of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    /// The model's side.
    pub agent: Role,
    /// The other side.
    pub user: Role,
}

/// One side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Label in published scripts.
    pub label: String,
    /// What this side is, for prompts.
    pub title: String,
}

/// Shape of the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Speaker of the first turn.
    #[serde(with = "initiator")]
    #[schema(value_type = String)]
    pub initiator: Speaker,
    /// `inbound` or `outbound`, seen from the agent.
    pub direction: Direction,
    /// Fewest turns.
    pub min_turns: u32,
    /// Most turns.
    pub max_turns: u32,
    /// Most words in all.
    pub max_words: u32,
    /// Whether one speaker never has two turns running.
    #[serde(default)]
    pub strict_alternation: bool,
}

/// Direction of the call, seen from the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The user calls.
    Inbound,
    /// The agent calls.
    Outbound,
}

mod initiator {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Speaker;

    pub(super) fn serialize<S: Serializer>(speaker: &Speaker, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match speaker {
            Speaker::Agent => "agent",
            Speaker::User => "user",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Speaker, D::Error> {
        match String::deserialize(from)?.as_str() {
            "agent" => Ok(Speaker::Agent),
            "user" => Ok(Speaker::User),
            other => Err(serde::de::Error::custom(format!("expected agent or user, not {other:?}"))),
        }
    }
}

/// Numbers of facts in the brief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FactSections {
    /// Facts that the agent may state.
    #[serde(rename = "KNOWN")]
    pub known: FactCount,
    /// Facts that the agent does not have at the start.
    #[serde(rename = "UNKNOWN")]
    pub unknown: FactCount,
}

/// Fewest and most facts of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FactCount {
    /// Fewest and most.
    pub facts: [u32; 2],
}

/// One axis of the sampling design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name.
    pub name: String,
    /// Its levels.
    pub values: Vec<AxisValue>,
}

impl Axis {
    /// Weights of the levels, summing to 1; uniform when none is given.
    #[must_use]
    pub fn weights(&self) -> Vec<f64> {
        let uniform = 1.0 / self.values.len().max(1) as f64;
        self.values.iter().map(|v| v.w.unwrap_or(uniform)).collect()
    }
    /// Shares of the levels as whole numbers: weights in parts per 10⁹, or 1 each when none is given.
    #[must_use]
    pub fn shares(&self) -> Vec<u64> {
        self.values.iter().map(|v| v.w.map_or(1, |w| (w * 1e9).round() as u64)).collect()
    }
    /// Whether the levels have weights of their own.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        self.values.iter().any(|v| v.w.is_some())
    }
}

/// One level of an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisValue {
    /// Id, unique in the axis; whole numbers may be written without quotes.
    #[serde(deserialize_with = "text_or_number")]
    pub id: String,
    /// Weight; all levels have one or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub w: Option<f64>,
    /// What it means, for prompts and people.
    #[serde(default)]
    pub text: String,
    /// Turns to aim at; the largest of a row counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Slots that stay the same through a dialogue: one of the texts is chosen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, OneOrMany>,
    /// Phrases chosen anew at every use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phrases: BTreeMap<String, Vec<String>>,
}

fn text_or_number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a whole number")]
    enum Id {
        Text(String),
        Number(u64),
    }
    Ok(match Id::deserialize(from)? {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    })
}

/// Rules for injections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectionRules {
    /// Share given while the user speaks.
    pub proactive_share: f64,
    /// Most tokens of one injection, tags included.
    pub max_tokens: u32,
    /// Fewest turns from one injection to the next.
    pub min_turn_gap: u32,
    /// Lower-case texts of which an agent turn before a reactive injection contains one.
    pub hedge_cues: Vec<String>,
}

/// What the agent has to say and must not say, as lower-case texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Compliance {
    /// Each occurs in some agent turn.
    pub must_say: Vec<String>,
    /// None occurs in any agent turn.
    pub must_not_say: Vec<String>,
}

/// A text was no domain pack: every fault that was found, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a domain pack: {}", listed(.0))]
pub struct PackFaults(pub Vec<FieldFault>);

fn listed(faults: &[FieldFault]) -> String {
    faults.iter().map(|f| format!("{}: {}", f.pointer, f.detail)).collect::<Vec<_>>().join("; ")
}

impl DomainPack {
    /// Reads a pack from YAML text.
    ///
    /// # Errors
    /// Every fault with an RFC 6901 pointer: unknown, missing and wrongly typed keys; or, when the shape is right,
    /// everything that contradicts itself.
    pub fn from_yaml(text: &str) -> Result<Self, PackFaults> {
        let pack = parse::parse(text)?;
        let faults = check::faults(&pack);
        if faults.is_empty() { Ok(pack) } else { Err(PackFaults(faults)) }
    }

    /// As [`Self::from_yaml`] for a JSON document.
    ///
    /// # Errors
    /// As above.
    pub fn from_json(document: serde_json::Value) -> Result<Self, PackFaults> {
        let pack = parse::read(document)?;
        let faults = check::faults(&pack);
        if faults.is_empty() { Ok(pack) } else { Err(PackFaults(faults)) }
    }

    /// JSON Schema (draft 2020-12) of a pack. It follows from the types that read one; what has to agree inside a pack is
    /// checked beyond it.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        schema::json_schema()
    }

    /// As [`Self::from_yaml`] for a file's bytes: UTF-8, with or without a byte order mark.
    ///
    /// # Errors
    /// As above; for other encodings with the offset of the first wrong byte and a guess of the encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PackFaults> {
        Self::from_yaml(parse::decode(bytes)?)
    }

    /// The axis of this name with its position.
    #[must_use]
    pub fn axis(&self, name: &str) -> Option<(usize, &Axis)> {
        self.axes.iter().enumerate().find(|(_, a)| a.name == name)
    }
}

/// The packs that ship with the product, by id.
#[must_use]
pub fn built_in() -> Vec<(String, DomainPack)> {
    const TEXTS: [&str; 2] = [
        include_str!("../../../configs/domains/insurance_brokerage.yaml"),
        include_str!("../../../configs/domains/pharma_adherence.yaml"),
    ];
    TEXTS
        .iter()
        .map(|text| DomainPack::from_yaml(text).expect("a test reads every pack that is built in"))
        .map(|pack| (pack.id.clone(), pack))
        .collect()
}

#[cfg(test)]
mod tests;
