//! V11: patterns of personal data that no record may hold, though all of it is invented.

use domain::dialogue::{DialogueRecord, FaultCode};

use super::Faults;

/// Digits in a row, separators left out, from which a number may be one of a phone, a card or a person.
const LONG_NUMBER: usize = 9;

pub(super) fn check(record: &DialogueRecord, faults: &mut Faults) {
    let texts = record
        .turns
        .iter()
        .map(|t| (format!("turn {}", t.index), &t.text))
        .chain(record.context_injections.iter().enumerate().map(|(i, x)| (format!("injection {i}"), &x.text)))
        .chain(std::iter::once(("the brief".to_owned(), &record.text_prompt)));
    for (place, text) in texts {
        for found in personal(text) {
            faults.require(false, FaultCode::V11, || {
                format!("{place} has {found:?}, which looks like personal data")
            });
        }
    }
}

/// Mail addresses, web addresses and numbers as long as those of phones, cards and social security.
fn personal(text: &str) -> Vec<String> {
    let mut found: Vec<String> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| {
            let lower = word.to_lowercase();
            lower.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
                || lower.starts_with("http:")
                || lower.starts_with("https:")
                || lower.starts_with("www.")
        })
        .map(str::to_owned)
        .collect();
    found.extend(long_numbers(text));
    found
}

/// Runs of digits that only blanks, hyphens, dots and brackets part: `(555) 010-1234`, `4111 1111 1111 1111`. Commas
/// and signs of money end a run, so that amounts and lists of figures are none.
fn long_numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut run = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if c.is_ascii_digit() || (!run.is_empty() && matches!(c, ' ' | '-' | '.' | '(' | ')')) || c == '+' {
            run.push(c);
            continue;
        }
        if run.bytes().filter(u8::is_ascii_digit).count() >= LONG_NUMBER {
            found.push(run.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned());
        }
        run.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_long_numbers_are_found_and_amounts_dates_and_times_are_not() {
        for text in [
            "Write to me@example.com.",
            "See https://example.com/a now",
            "My number is 078-05-1120.",
            "Call (555) 010-1234",
            "Card 4111 1111 1111 1111",
            "+1 555 010 1234",
        ] {
            assert_eq!(personal(text).len(), 1, "{text} {:?}", personal(text));
        }
        for text in [
            "It is $1,234,567.05, up 12%, on March 14, 2026, at 8:30.",
            "CP-48213 and 90 day supply of 500 milligrams",
            "between 3 and 5 at home",
            "Lucy @ the shop",
        ] {
            assert_eq!(personal(text), [""; 0], "{text}");
        }
    }
}
