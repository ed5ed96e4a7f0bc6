//! What an import finds: faults stop it, repairs are counted. Every fault names its file, and the line where there is one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that an import does not accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Path in the source.
    pub file: String,
    /// Line, from 1; none for files without lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Stable.
    pub code: String,
    /// What was found and what was expected.
    pub detail: String,
}

impl Fault {
    /// A fault of a whole file.
    #[must_use]
    pub fn new(file: &str, code: &str, detail: impl fmt::Display) -> Self {
        Self { file: file.into(), line: None, code: code.into(), detail: detail.to_string() }
    }

    /// The same at a line.
    #[must_use]
    pub fn at(self, line: u64) -> Self {
        Self { line: Some(line), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.detail),
            None => write!(f, "{}: {}", self.file, self.detail),
        }
    }
}

/// One kind of repair or remark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// How often.
    pub count: u64,
    /// The first places.
    pub examples: Vec<String>,
}

/// Places kept of each kind of remark.
const EXAMPLES: usize = 5;

/// Everything found so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Why nothing is imported; empty when all is well.
    pub faults: Vec<Fault>,
    /// What was put right, by stable code.
    pub repairs: BTreeMap<String, Remark>,
    /// What was kept as it is and deserves a look.
    pub warnings: BTreeMap<String, Remark>,
}

impl Findings {
    /// Notes a fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Counts repairs of a kind.
    pub fn repaired(&mut self, code: &str, count: u64, place: impl fmt::Display) {
        count_in(&mut self.repairs, code, count, place);
    }

    /// Counts something to look at.
    pub fn warn(&mut self, code: &str, place: impl fmt::Display) {
        count_in(&mut self.warnings, code, 1, place);
    }

    /// How often a repair was made.
    #[must_use]
    pub fn repairs_of(&self, code: &str) -> u64 {
        self.repairs.get(code).map_or(0, |r| r.count)
    }

    /// Adds what another part found.
    pub fn merge(&mut self, other: Self) {
        self.faults.extend(other.faults);
        for (ours, theirs) in [(&mut self.repairs, other.repairs), (&mut self.warnings, other.warnings)] {
            for (code, remark) in theirs {
                let entry = ours.entry(code).or_default();
                entry.count += remark.count;
                let room = EXAMPLES.saturating_sub(entry.examples.len());
                entry.examples.extend(remark.examples.into_iter().take(room));
            }
        }
    }

    /// The faults for a reader: how many, and the first `shown` of them, a line each.
    #[must_use]
    pub fn summary(&self, shown: usize) -> String {
        let n = self.faults.len();
        let mut text = format!("{n} fault{}, nothing was imported", if n == 1 { "" } else { "s" });
        for fault in self.faults.iter().take(shown) {
            text.push_str(&format!("\n{fault} [{}]", fault.code));
        }
        if n > shown {
            text.push_str(&format!("\n… and {} more in the report", n - shown));
        }
        text
    }
}

fn count_in(map: &mut BTreeMap<String, Remark>, code: &str, count: u64, place: impl fmt::Display) {
    if count == 0 {
        return;
    }
    let entry = map.entry(code.to_owned()).or_default();
    entry.count += count;
    if entry.examples.len() < EXAMPLES {
        entry.examples.push(place.to_string());
    }
}
