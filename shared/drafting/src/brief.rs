//! The brief: labelled lines that the agent knows before the call.

use domain::pack::DomainPack;

use crate::error::DraftError;
use crate::slots::Filler;

/// Between the facts of a line.
pub const FACT_SEPARATOR: &str = "; ";

/// Writes the lines of the pack's sections in order.
///
/// # Errors
/// When a slot is not known in this row.
pub fn write(pack: &DomainPack, filler: &mut Filler, unknown: &[&str]) -> Result<String, DraftError> {
    let grammar = &pack.grammar.brief;
    let mut lines = Vec::new();
    for section in &pack.prompt_sections {
        let body = match section.as_str() {
            "KNOWN" => known(pack, filler)?,
            "UNKNOWN" => unknown.join(FACT_SEPARATOR),
            other => filler.fill(grammar.lines.get(other).map_or("", String::as_str))?,
        };
        lines.push(format!("{section}: {body}"));
    }
    Ok(lines.join("\n"))
}

/// The facts of every dialogue and some of the others.
fn known(pack: &DomainPack, filler: &mut Filler) -> Result<String, DraftError> {
    let grammar = &pack.grammar.brief;
    let [low, high] = pack.sections.known.facts.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut extra: Vec<&String> = grammar.known_extra.iter().collect();
    filler.stream().shuffle(&mut extra);
    let most = high.saturating_sub(grammar.known.len()).min(extra.len());
    let least = low.saturating_sub(grammar.known.len()).min(most);
    extra.truncate(least + filler.stream().index(most - least + 1));
    let facts: Result<Vec<String>, DraftError> =
        grammar.known.iter().chain(extra).map(|fact| filler.fill(fact)).collect();
    Ok(facts?.join(FACT_SEPARATOR))
}

/// Section and body of each line; `None` for a line without a label.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<(&str, &str)>> {
    text.lines().map(|line| line.split_once(": ")).collect()
}
