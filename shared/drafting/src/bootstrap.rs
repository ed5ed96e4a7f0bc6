//! P6: a new domain pack drafted by a writing model, for a person to review.
//!
//! The model is shown the schema and a pack that ships; what it answers is checked as any pack, and it is told every fault
//! until it has none. A draft is never activated by itself.

use domain::pack::{DomainPack, PackFaults};

use crate::trial::{TrialError, try_out};

/// Faults that a model is told at once.
const SHOWN: usize = 40;

/// Why an answer is no pack yet.
#[derive(Debug, thiserror::Error)]
pub enum DraftFaults {
    /// It has faults of shape, or contradicts itself.
    #[error(transparent)]
    Pack(#[from] PackFaults),
    /// It has another id than asked for.
    #[error("the id of the pack is {found:?}; asked for was {wanted:?}")]
    OtherId {
        /// Of the answer.
        found: String,
        /// As asked for.
        wanted: String,
    },
    /// Dialogues written with it break rules.
    #[error(transparent)]
    Trial(#[from] TrialError),
}

/// What the model is told about packs; the same for every draft.
#[must_use]
pub fn system() -> String {
    let example = domain::pack::built_in().into_iter().next_back().map(|(_, pack)| small(pack));
    let example = example.and_then(|pack| serde_json::to_string(&pack).ok()).unwrap_or_default();
    format!(
        "You draft domain packs: data from which synthetic telephone calls are made. Answer with one JSON document that \
         the schema below accepts, and nothing else.\n\nRules beyond the schema: eight axes, two of them \"outcome\" \
         (weights that sum to 1) and \"injection_count\" (0, 3, 6 and 9 with the weights of the example); personas and \
         goals in great variety, at least 20 of each; one leading exchange for each goal; at least 12 injected facts that \
         always apply, one ending for each outcome; agent lines hold no figures outside of slots and use only slots that \
         the brief has; every hedge has one of the hedge_cues; must_say and must_not_say in lower case, and every must_say \
         occurs in every variant of an agent turn that always comes. Invent all names; use no real people, companies or \
         telephone numbers.\n\nJSON Schema:\n{}\n\nExample, shortened to a few levels of each axis:\n{example}\n",
        DomainPack::json_schema()
    )
}

/// A pack with a few levels of each axis.
fn small(mut pack: DomainPack) -> DomainPack {
    for axis in pack.axes.iter_mut().filter(|axis| !axis.is_weighted()) {
        axis.values.truncate(3);
    }
    let kept = |when: &domain::pack::When| {
        when.iter().all(|(name, levels)| {
            let axis = pack.axes.iter().find(|axis| axis.name == *name);
            axis.is_some_and(|axis| levels.iter().any(|l| axis.values.iter().any(|v| v.id == *l)))
        })
    };
    pack.grammar.exchanges =
        pack.grammar.exchanges.iter().filter(|e| kept(&e.when)).take(8).cloned().collect();
    pack.grammar.facts = pack.grammar.facts.iter().filter(|f| kept(&f.when)).take(4).cloned().collect();
    pack.forbid.clear();
    pack
}

/// What the model is asked.
#[must_use]
pub fn request(id: &str, description: &str) -> String {
    format!("Draft the pack with the id {id:?}, version 1, for these calls: {description}")
}

/// The pack of an answer: a JSON or YAML document, with or without a fence around it.
///
/// # Errors
/// Every fault that it has.
pub fn read(id: &str, answer: &str) -> Result<DomainPack, DraftFaults> {
    let pack = DomainPack::from_bytes(unfenced(answer).as_bytes())?;
    if pack.id != id {
        return Err(DraftFaults::OtherId { found: pack.id, wanted: id.to_owned() });
    }
    try_out(&pack)?;
    Ok(pack)
}

fn unfenced(answer: &str) -> &str {
    let Some((_, fenced)) = answer.split_once("```") else { return answer.trim() };
    let body = fenced.split_once('\n').map_or(fenced, |(_, body)| body);
    body.rsplit_once("```").map_or(body, |(body, _)| body).trim()
}

/// What the model is told about an answer that is no pack yet.
#[must_use]
pub fn repair(faults: &DraftFaults) -> String {
    let listed = match faults {
        DraftFaults::Pack(PackFaults(faults)) => {
            let more = faults.len().saturating_sub(SHOWN);
            let mut lines: Vec<String> =
                faults.iter().take(SHOWN).map(|f| format!("- {} {}", f.pointer, f.detail)).collect();
            if more > 0 {
                lines.push(format!("- and {more} more"));
            }
            lines.join("\n")
        }
        other => format!("- {other}"),
    };
    format!("The pack has faults. Answer with the whole corrected document.\n{listed}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_or_without_a_fence_and_every_fault_is_told_back() {
        let (id, pack) = domain::pack::built_in().pop().expect("one ships");
        let text = serde_json::to_string(&pack).expect("is JSON");
        for answer in [text.clone(), format!("Here it is:\n```json\n{text}\n```\nDone.")] {
            assert_eq!(read(&id, &answer).expect("is a pack"), pack);
        }
        let other = read("other", &text).expect_err("has another id");
        assert!(repair(&other).contains("\"other\""));
        let broken = text.replacen("\"min_turns\":16", "\"min_turns\":-1", 1);
        assert!(repair(&read(&id, &broken).expect_err("is broken")).contains("/call/min_turns"));
        let said = text.replacen("Goodbye and take care.", "I guarantee it.", 1);
        assert!(repair(&read(&id, &said).expect_err("promises")).contains("V13"));
    }

    #[test]
    fn the_prompt_holds_the_schema_and_an_example_that_fits_a_window() {
        let text = system();
        assert!(text.contains("\"$defs\"") && text.contains("pharma_adherence"));
        assert!(text.len() < 80_000, "{}", text.len());
        assert!(request("dental", "reminders of a dentist").contains("\"dental\""));
    }
}
