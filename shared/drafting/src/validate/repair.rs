//! What a writing model is told about a record that breaks rules, so that it can write it again (P3).

use std::collections::BTreeMap;
use std::fmt::Write;

use domain::dialogue::{FaultCode, RecordFault};

/// Faults of one rule that are spelled out; the rest is counted.
const SHOWN: usize = 8;

/// The message that asks for the whole dialogue again, with every fault and what each rule wants.
#[must_use]
pub fn message(faults: &[RecordFault]) -> String {
    let mut by_code: BTreeMap<FaultCode, Vec<&str>> = BTreeMap::new();
    for fault in faults {
        by_code.entry(fault.code).or_default().push(&fault.detail);
    }
    let mut text = String::from(
        "The dialogue breaks the rules below. Write the whole dialogue again through the same tool: keep what is good, \
         change only what the rules ask for, keep the axis values and the number of injections.\n",
    );
    for (code, details) in by_code {
        let _ = writeln!(text, "\n{code}: {}", wanted(code));
        for detail in details.iter().take(SHOWN) {
            let _ = writeln!(text, "- {detail}");
        }
        if details.len() > SHOWN {
            let _ = writeln!(text, "- and {} more of this kind", details.len() - SHOWN);
        }
    }
    text
}

/// What the rule asks for, as an instruction.
const fn wanted(code: FaultCode) -> &'static str {
    match code {
        FaultCode::V01 => {
            "start with the speaker who opens the call and stay within the number of turns and words."
        }
        FaultCode::V02 => "let the speakers alternate; nobody has three turns in a row.",
        FaultCode::V03 => {
            "write only what is spoken: 1 to 120 words a turn, no brackets, tags, markdown, stage directions or labels."
        }
        FaultCode::V04 => {
            "sort injections by turn, leave turns between them, and let at least one agent turn follow each."
        }
        FaultCode::V05 => {
            "give exactly the number of injections asked for, each one short sentence without tags."
        }
        FaultCode::V06 => {
            "put an injection either after a turn of the user, or after an agent turn that openly buys time \
             (\"let me check that\")."
        }
        FaultCode::V07 => {
            "give every section of the brief in order, with the numbers of facts asked for, and keep it short."
        }
        FaultCode::V08 => {
            "the agent states a figure, a date, a number or a name only when the brief's KNOWN line, an earlier turn or \
             an earlier injection holds it; otherwise it hedges, or the injection comes earlier."
        }
        FaultCode::V09 => "let the call end with the outcome asked for.",
        FaultCode::V10 => {
            "tell another story: other wording, other order, other details than the dialogue it resembles."
        }
        FaultCode::V11 => {
            "use no mail address, web address, phone, card or social security number, not even invented ones."
        }
        FaultCode::V12 => "give the whole dialogue in one answer.",
        FaultCode::V13 => "the agent says every line that the domain requires and none that it forbids.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told_with_its_rule_and_long_lists_are_counted() {
        let faults: Vec<RecordFault> = FaultCode::ALL
            .iter()
            .map(|code| RecordFault { code: *code, detail: format!("detail of {code}") })
            .chain((0..20).map(|i| RecordFault { code: FaultCode::V08, detail: format!("figure {i}") }))
            .collect();
        let text = message(&faults);
        for code in FaultCode::ALL {
            assert!(
                text.contains(&format!("\n{code}: ")) && text.contains(&format!("- detail of {code}")),
                "{text}"
            );
        }
        assert!(text.contains("and 13 more of this kind"), "{text}");
    }
}
