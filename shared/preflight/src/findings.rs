//! Findings of one kind at many places are one finding.

use domain::preflight::{Finding, Severity};

/// Places that are listed; the rest is counted.
const PLACES: usize = 20;

/// A size for people.
pub fn size(bytes: f64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    if bytes < 1024.0 * MIB {
        format!("{:.1} MiB", bytes / MIB)
    } else {
        format!("{:.1} GiB", bytes / MIB / 1024.0)
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// About the request: `pointer` is below `/spec` unless it is empty.
    pub fn say(&mut self, severity: Severity, code: &str, pointer: &str, detail: impl Into<String>) {
        self.0.push(Finding {
            severity,
            code: code.into(),
            pointer: pointer.into(),
            detail: detail.into(),
            places: Vec::new(),
            count: 1,
        });
    }

    /// About a place; further places of the same code are added to the finding that is there.
    pub fn at(&mut self, severity: Severity, code: &str, place: &str, detail: impl Into<String>) {
        let text = format!("{place}: {}", detail.into());
        if let Some(known) = self.0.iter_mut().find(|f| f.code == code && !f.places.is_empty()) {
            known.count += 1;
            if known.places.len() < PLACES {
                known.places.push(text);
            }
            return;
        }
        self.0.push(Finding {
            severity,
            code: code.into(),
            pointer: String::new(),
            detail: text.clone(),
            places: vec![text],
            count: 1,
        });
    }

    /// Errors first; the order within a weight stays.
    pub fn finish(mut self) -> Vec<Finding> {
        for finding in self.0.iter_mut().filter(|f| f.count > 1) {
            finding.detail = format!("{} places, the first: {}", finding.count, finding.detail);
        }
        self.0.sort_by_key(|f| f.severity);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_are_one_finding_and_errors_come_first() {
        let mut findings = Findings::default();
        findings.say(Severity::Warning, "lr_high", "/spec/optim/lr", "lr is 1");
        for i in 0..30 {
            findings.at(Severity::Error, "sidecar", &format!("d{i}.json"), "no words");
        }
        let list = findings.finish();
        assert_eq!((list.len(), list[0].code.as_str(), list[0].count), (2, "sidecar", 30));
        assert_eq!(list[0].places.len(), PLACES);
        assert_eq!(list[0].detail, "30 places, the first: d0.json: no words");
    }
}
