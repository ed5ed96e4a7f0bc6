//! Phrases of the offline generator. `{name}` in a text is a slot or a phrase list.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Axis name to the levels for which an entry applies; empty = always.
pub type When = BTreeMap<String, Vec<String>>;

/// Everything the offline generator speaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grammar {
    /// Slots drawn once for a dialogue, in this order.
    pub slots: Vec<Slot>,
    /// Phrases chosen anew at every use, on top of those that axis values bring.
    #[serde(default)]
    pub phrases: BTreeMap<String, Vec<String>>,
    /// Lines of the brief.
    pub brief: BriefGrammar,
    /// First turns: for each, its variants; the speakers alternate from the initiator and the user has the last.
    pub opening: Vec<Vec<String>>,
    /// Questions and answers, in the order in which they may come.
    pub exchanges: Vec<Exchange>,
    /// What an injection can bring.
    pub facts: Vec<InjectedFact>,
    /// What the agent says before a reactive injection.
    pub hedges: Vec<String>,
    /// What the user says while the agent looks it up.
    pub waits: Vec<String>,
    /// What the agent says to a question that nothing answers.
    pub unanswered: Vec<String>,
    /// What leads to each outcome.
    pub endings: Vec<Ending>,
    /// The last two turns.
    pub closing: Closing,
}

/// A slot and how its value is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Name used in braces.
    pub name: String,
    /// How it is drawn.
    pub is: SlotKind,
}

/// How the value of a slot is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SlotKind {
    /// One of the texts.
    Pick(Vec<String>),
    /// A whole number, written in digits.
    Number {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
        /// Distance of the possible values.
        step: u64,
    },
    /// An amount in cents, written `$1,250` or `$12.50`.
    Money {
        /// Least.
        min_cents: u64,
        /// Greatest.
        max_cents: u64,
        /// Distance of the possible values.
        step_cents: u64,
    },
    /// An amount raised by the value of another slot in percent, to the whole dollar.
    Raised {
        /// A money slot before this one.
        money: String,
        /// A number slot before this one.
        percent: String,
    },
    /// A part of another amount, to the whole dollar.
    Share {
        /// A money slot before this one.
        money: String,
        /// Least part, in percent.
        min_percent: u64,
        /// Greatest part, in percent.
        max_percent: u64,
    },
    /// A day, written `March 14`, with the year when asked for.
    Date {
        /// First possible day.
        from: chrono::NaiveDate,
        /// Days after it that are possible too.
        days: u32,
        /// Whether the year is written.
        #[serde(default)]
        year: bool,
    },
    /// The day of another slot and a number of days more, without the year.
    Later {
        /// A date slot before this one.
        date: String,
        /// A number slot before this one.
        days: String,
    },
    /// `#` is a digit from 1 to 9, everything else stays.
    Pattern(String),
}

/// Lines of the brief; each section of the pack has one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BriefGrammar {
    /// Section to its text, for all but KNOWN and UNKNOWN.
    pub lines: BTreeMap<String, String>,
    /// KNOWN facts of every dialogue.
    pub known: Vec<String>,
    /// KNOWN facts of some.
    pub known_extra: Vec<String>,
}

/// The agent says something, the user answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Where it applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: When,
    /// Whether it gives the reason of the call: one such exchange comes first.
    #[serde(default)]
    pub leads: bool,
    /// Variants of what the agent says.
    pub agent: Vec<String>,
    /// Variants of the answer.
    pub user: Vec<String>,
}

/// A fact that only an injection brings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectedFact {
    /// Id, unique in the pack.
    pub id: String,
    /// Where it applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: When,
    /// How the UNKNOWN line names it.
    pub unknown: String,
    /// Variants of the user's question.
    pub probe: Vec<String>,
    /// Variants of the injected text: imperative first, then the fact.
    pub inject: Vec<String>,
    /// Variants of what the agent says with it.
    pub reply: Vec<String>,
}

/// What leads to an outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    /// Level of the outcome axis.
    pub outcome: String,
    /// Variants of what the agent proposes.
    pub agent: Vec<String>,
    /// Variants of the answer.
    pub user: Vec<String>,
}

/// The last two turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Closing {
    /// Variants of the agent's goodbye.
    pub agent: Vec<String>,
    /// Variants of the user's.
    pub user: Vec<String>,
}

/// One text or several to choose from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// Always this.
    One(String),
    /// One of these.
    Many(Vec<String>),
}

impl OneOrMany {
    /// The texts to choose from.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}
