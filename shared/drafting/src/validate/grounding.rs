//! V08: the agent states only what the brief, an earlier turn or an earlier injection holds.

use std::collections::BTreeSet;

use domain::dialogue::{DialogueRecord, FaultCode, Speaker};

use super::Faults;
use crate::brief;
use crate::claims::{Known, claims};

/// Checks figures of every kind, and the names that an injection is to bring.
pub(super) fn check(record: &DialogueRecord, faults: &mut Faults) {
    let mut known = Known::default();
    let mut heard = String::new();
    for (label, body) in brief::parse(&record.text_prompt).unwrap_or_default() {
        if label != "UNKNOWN" {
            known.learn(body);
            learn(&mut heard, body);
        }
    }
    let mut injections = record.context_injections.iter().enumerate().peekable();
    for turn in &record.turns {
        while let Some((_, injection)) = injections.next_if(|(_, i)| i.after_turn < turn.index) {
            known.learn(&injection.text);
            learn(&mut heard, &injection.text);
        }
        if turn.speaker == Speaker::Agent {
            let later = || injections.clone();
            for claim in claims(&turn.text).into_iter().filter(|claim| !known.supports(claim)) {
                let brought = later().find(|(_, i)| Known::of(&i.text).supports(&claim));
                faults.require(false, FaultCode::V08, || match brought {
                    Some((number, i)) => format!(
                        "turn {} states {claim}, which injection {number} brings only after turn {}",
                        turn.index, i.after_turn
                    ),
                    None => format!("turn {} states {claim}, which nothing before it holds", turn.index),
                });
            }
            let said = words(&turn.text);
            for (number, injection) in later() {
                for name in
                    names(&injection.text).into_iter().filter(|n| !heard.contains(n) && said.contains(n))
                {
                    faults.require(false, FaultCode::V08, || {
                        format!(
                            "turn {} says{name}, which injection {number} brings only after turn {}",
                            turn.index, injection.after_turn
                        )
                    });
                }
            }
        }
        known.learn(&turn.text);
        learn(&mut heard, &turn.text);
    }
}

fn learn(heard: &mut String, text: &str) {
    heard.push_str(&words(text));
}

/// The words of a text in lower case, each with a blank on both sides.
fn words(text: &str) -> String {
    let mut out = String::from(" ");
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()) {
        out.push_str(&word.to_lowercase());
        out.push(' ');
    }
    out
}

/// Names of two or more words: runs of capitals that do not begin a sentence, as [`words`] writes them.
fn names(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for sentence in text.split(['.', '!', '?', ':', ',', ';']) {
        let mut run: Vec<&str> = Vec::new();
        let tokens = sentence.split_whitespace().enumerate().map(|(i, w)| (i > 0 && is_capital(w), w));
        for (capital, word) in tokens.chain([(false, "")]) {
            if capital {
                run.push(word);
            } else if run.len() >= 2 {
                found.insert(words(&run.join(" ")));
                run.clear();
            } else {
                run.clear();
            }
        }
    }
    found
}

fn is_capital(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_uppercase)
        && letters.any(char::is_lowercase)
        && !spoken::MONTHS.contains(&&*word.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_runs_of_capitals_that_do_not_begin_a_sentence() {
        let found: Vec<String> =
            names("Offer Blue Harbor at $9. Say Doctor Ana Ruiz calls on March 14.").into_iter().collect();
        assert_eq!(found, [" blue harbor ", " doctor ana ruiz "]);
    }
}
