//! What has to agree inside a pack. Every fault is collected.

use std::collections::BTreeSet;

use super::{AXES, Axis, DomainPack, INJECTION_AXIS, OUTCOME_AXIS};
use crate::run::FieldFault;

mod phrases;

/// Sections that a brief may have, in the order in which they come.
const SECTIONS: [&str; 7] = ["ROLE", "CLIENT", "RELATIONSHIP", "KNOWN", "UNKNOWN", "GOAL", "STYLE"];
/// Sections that may be left out.
const OPTIONAL: [&str; 1] = ["RELATIONSHIP"];

/// Collects faults.
#[derive(Default)]
struct Faults(Vec<FieldFault>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.0.push(FieldFault { pointer: pointer.into(), detail: detail.into() });
    }
    fn require(&mut self, holds: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !holds {
            self.add(pointer, detail());
        }
    }
}

pub(super) fn faults(pack: &DomainPack) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    names(pack, &mut faults);
    call(pack, &mut faults);
    sections(pack, &mut faults);
    axes(pack, &mut faults);
    joint(pack, &mut faults);
    forbidden(pack, &mut faults);
    injections(pack, &mut faults);
    phrases::check(pack, &mut faults);
    faults.0
}

fn is_word(text: &str, extra: &[u8]) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || extra.contains(&b))
}

fn names(pack: &DomainPack, faults: &mut Faults) {
    faults.require(is_word(&pack.id, b"_") && pack.id.len() <= 64, "/id", || {
        format!("must be lower-case letters, digits and _, at most 64, not {:?}", pack.id)
    });
    faults.require(is_word(&pack.short, b"") && (2..=8).contains(&pack.short.len()), "/short", || {
        format!("must be 2 to 8 lower-case letters and digits, not {:?}", pack.short)
    });
    faults.require(pack.version >= 1, "/version", || "must be at least 1, not 0".into());
}

fn call(pack: &DomainPack, faults: &mut Faults) {
    let call = &pack.call;
    faults.require((4..=200).contains(&call.min_turns), "/call/min_turns", || {
        format!("must be 4 to 200, not {}", call.min_turns)
    });
    faults.require((call.min_turns..=200).contains(&call.max_turns), "/call/max_turns", || {
        format!("must be between min_turns and 200, not {}", call.max_turns)
    });
    faults.require((50..=10_000).contains(&call.max_words), "/call/max_words", || {
        format!("must be 50 to 10000, not {}", call.max_words)
    });
}

fn sections(pack: &DomainPack, faults: &mut Faults) {
    let wanted: Vec<&str> = SECTIONS
        .into_iter()
        .filter(|s| !OPTIONAL.contains(s) || pack.prompt_sections.iter().any(|p| p == s))
        .collect();
    faults.require(pack.prompt_sections == wanted, "/prompt_sections", || {
        format!("must be {wanted:?} in this order, not {:?}", pack.prompt_sections)
    });
    for (pointer, range) in [
        ("/sections/KNOWN/facts", pack.sections.known.facts),
        ("/sections/UNKNOWN/facts", pack.sections.unknown.facts),
    ] {
        let [low, high] = range;
        faults.require(1 <= low && low <= high && high <= 20, pointer, || {
            format!("must be two numbers from 1 to 20, the smaller first, not {low} and {high}")
        });
    }
}

fn axes(pack: &DomainPack, faults: &mut Faults) {
    faults.require(pack.axes.len() == AXES, "/axes", || {
        format!("must be {AXES} axes, not {}", pack.axes.len())
    });
    let mut seen = BTreeSet::new();
    for (i, axis) in pack.axes.iter().enumerate() {
        let at = format!("/axes/{i}");
        faults.require(is_word(&axis.name, b"_"), &format!("{at}/name"), || {
            format!("must be lower-case letters, digits and _, not {:?}", axis.name)
        });
        faults.require(seen.insert(&axis.name), &format!("{at}/name"), || {
            format!("{:?} is the name of another axis too", axis.name)
        });
        levels(axis, &at, faults);
    }
    for needed in [OUTCOME_AXIS, INJECTION_AXIS] {
        faults.require(pack.axis(needed).is_some(), "/axes", || format!("has no axis {needed:?}"));
    }
    if let Some((i, axis)) = pack.axis(INJECTION_AXIS) {
        for (j, value) in axis.values.iter().enumerate() {
            let known = value.id.parse::<u32>().is_ok_and(|n| n <= 20);
            faults.require(known, &format!("/axes/{i}/values/{j}/id"), || {
                format!("must be a number of injections, at most 20, not {:?}", value.id)
            });
        }
    }
}

fn levels(axis: &Axis, at: &str, faults: &mut Faults) {
    faults.require(!axis.values.is_empty(), &format!("{at}/values"), || "must not be empty".into());
    let mut ids = BTreeSet::new();
    for (j, value) in axis.values.iter().enumerate() {
        let at = format!("{at}/values/{j}");
        faults.require(!value.id.is_empty() && ids.insert(&value.id), &format!("{at}/id"), || {
            format!("{:?} is empty or names another level too", value.id)
        });
        let weight = value.w.unwrap_or(0.5);
        faults.require(weight > 0.0 && weight <= 1.0, &format!("{at}/w"), || {
            format!("must be above 0 and at most 1, not {weight}")
        });
    }
    let weighted = axis.values.iter().filter(|v| v.w.is_some()).count();
    faults.require(weighted == 0 || weighted == axis.values.len(), &format!("{at}/values"), || {
        format!("{weighted} of {} levels have weights: all or none must", axis.values.len())
    });
    let sum: f64 = axis.weights().iter().sum();
    faults.require(
        weighted != axis.values.len() || (sum - 1.0).abs() < 1e-6,
        &format!("{at}/values"),
        || format!("the weights must sum to 1, not {sum}"),
    );
}

fn joint(pack: &DomainPack, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (i, pair) in pack.joint.iter().enumerate() {
        for (j, name) in pair.iter().enumerate() {
            let at = format!("/joint/{i}/{j}");
            faults.require(pack.axis(name).is_some(), &at, || format!("{name:?} is no axis"));
            faults.require(seen.insert(name), &at, || format!("{name:?} is in a pair already"));
        }
    }
}

fn forbidden(pack: &DomainPack, faults: &mut Faults) {
    for (i, rule) in pack.forbid.iter().enumerate() {
        let at = format!("/forbid/{i}");
        faults.require(rule.len() >= 2, &at, || {
            format!("must name levels of at least two axes, not {}", rule.len())
        });
        for (name, levels) in rule {
            let Some((_, axis)) = pack.axis(name) else {
                faults.add(at.clone(), format!("{name:?} is no axis"));
                continue;
            };
            for level in levels.iter().filter(|l| axis.values.iter().all(|v| v.id != **l)) {
                faults.add(format!("{at}/{name}"), format!("{level:?} is no level of this axis"));
            }
            let all = axis.values.iter().all(|v| levels.contains(&v.id));
            faults.require(!levels.is_empty() && !all, &format!("{at}/{name}"), || {
                "must name some of the levels, not none or all".into()
            });
        }
        // Their combinations are counted together; swapping one of the two would undo the counts.
        let free = rule.keys().any(|name| pack.joint.iter().all(|pair| !pair.contains(name)));
        faults.require(free, &at, || {
            "all of its axes are allocated in pairs (/joint); one must be free".into()
        });
    }
}

fn injections(pack: &DomainPack, faults: &mut Faults) {
    let rules = &pack.injections;
    faults.require((0.0..=1.0).contains(&rules.proactive_share), "/injections/proactive_share", || {
        format!("must be 0 to 1, not {}", rules.proactive_share)
    });
    faults.require((8..=96).contains(&rules.max_tokens), "/injections/max_tokens", || {
        format!("must be 8 to 96, not {}", rules.max_tokens)
    });
    faults.require((1..=2).contains(&rules.min_turn_gap), "/injections/min_turn_gap", || {
        format!("must be 1 or 2, not {}", rules.min_turn_gap)
    });
    for (i, cue) in rules.hedge_cues.iter().enumerate() {
        faults.require(
            !cue.is_empty() && *cue == cue.to_lowercase(),
            &format!("/injections/hedge_cues/{i}"),
            || format!("must be lower-case text, not {cue:?}"),
        );
    }
    for (list, texts) in
        [("must_say", &pack.compliance.must_say), ("must_not_say", &pack.compliance.must_not_say)]
    {
        for (i, text) in texts.iter().enumerate() {
            faults.require(
                !text.is_empty() && *text == text.to_lowercase(),
                &format!("/compliance/{list}/{i}"),
                || format!("must be lower-case text, not {text:?}"),
            );
        }
    }
}
