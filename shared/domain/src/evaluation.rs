//! Evaluations and comparisons.

use serde::{Deserialize, Serialize};

/// What to evaluate with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationSpec {
    /// Eval dialogues at most.
    pub max_dialogues: u32,
    /// Seconds of each dialogue at most.
    pub max_seconds: f64,
    /// Seed of the sessions' generators.
    pub seed: u64,
}

impl Default for EvaluationSpec {
    fn default() -> Self {
        Self { max_dialogues: 20, max_seconds: 240.0, seed: 0 }
    }
}

/// Measured facts of one played dialogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DialogueScore {
    /// Record id of the dialogue.
    pub dialogue: String,
    /// Metric name to value; a metric that is not defined here is absent.
    pub metrics: std::collections::BTreeMap<String, f64>,
}
