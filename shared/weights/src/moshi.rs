//! A PersonaPlex model from a plain Moshi one: 16 depformer steps from 8 (personaplex.md 1.3).
//!
//! Steps 8 to 15 predict the user's codebooks as steps 0 to 7 predict the agent's, so they start as copies. One table has no
//! source: `depformer_emb.7`, the agent's last codebook as input of step 8. It becomes zeros, so that step 8 starts from
//! the hidden state alone, as step 0 of the user's half.

use std::fmt;

use serde::Serialize;

use crate::TensorSpec;

/// Steps of a plain Moshi model.
const STEPS: i64 = 8;

/// Where a tensor of a 16-step model comes from in an 8-step one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As it is.
    Same,
    /// The rows of all eight steps twice.
    Twice,
    /// The tensor of the step eight before.
    Copy { source: String },
    /// No source: zeros of the type of `like`.
    Zeros { like: String },
}

/// What [`crate::convert()`] did to make a PersonaPlex model of a plain Moshi model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Adaptation {
    /// Tensors taken over as they are.
    pub kept: usize,
    /// Tensors of steps 8 to 15 copied from the step eight before.
    pub copied: usize,
    /// Attention tensors whose rows were repeated for the second eight steps.
    pub duplicated: usize,
    /// Tensors that Moshi has no source for, now zeros.
    pub zeroed: Vec<String>,
}

impl Adaptation {
    pub(crate) fn count(&mut self, name: &str, rule: &Rule) {
        match rule {
            Rule::Same => self.kept += 1,
            Rule::Twice => self.duplicated += 1,
            Rule::Copy { .. } => self.copied += 1,
            Rule::Zeros { .. } => self.zeroed.push(name.into()),
        }
    }
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, copied, duplicated, zeroed } = self;
        let (count, names) = (zeroed.len(), zeroed.join(", "));
        write!(f, "{kept} kept, {copied} copied, {duplicated} duplicated, {count} zeroed ({names})")
    }
}

/// The rule for the tensor `name` of a 16-step model.
pub(crate) fn rule(name: &str) -> Rule {
    let parts: Vec<&str> = name.split('.').collect();
    let at = match parts.as_slice() {
        ["depformer", "layers", _, "self_attn", ..] => return Rule::Twice,
        ["depformer", "layers", _, "gating", ..] => 4,
        ["depformer_in" | "depformer_emb" | "linears", ..] => 1,
        _ => return Rule::Same,
    };
    let Some(step) = parts.get(at).and_then(|s| s.parse::<i64>().ok()) else { return Rule::Same };
    let with = |step: i64| {
        let step = step.to_string();
        let mut parts = parts.clone();
        parts[at] = &step;
        parts.join(".")
    };
    if parts[0] == "depformer_emb" && step == STEPS - 1 {
        Rule::Zeros { like: with(0) }
    } else if step >= STEPS {
        Rule::Copy { source: with(step - STEPS) }
    } else {
        Rule::Same
    }
}

/// Depformer steps of an inventory.
pub(crate) fn steps(wanted: &[TensorSpec]) -> i64 {
    wanted.iter().filter(|s| s.name.starts_with("depformer_in.")).count() as i64
}

/// The inventory of the plain Moshi model that a 16-step inventory can be made from; `None` for any other inventory.
pub(crate) fn eight_steps(wanted: &[TensorSpec]) -> Option<Vec<TensorSpec>> {
    if steps(wanted) != 2 * STEPS {
        return None;
    }
    let specs = wanted.iter().filter_map(|spec| match rule(&spec.name) {
        Rule::Same => Some(spec.clone()),
        Rule::Twice => {
            let mut half = spec.clone();
            half.shape[0] /= 2;
            Some(half)
        }
        Rule::Copy { .. } | Rule::Zeros { .. } => None,
    });
    Some(specs.collect())
}
