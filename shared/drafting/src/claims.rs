//! Claims: the amounts, percentages, dates, identifiers and numbers that a text states.

use std::collections::BTreeSet;

use spoken::{MONTHS, ONES, TENS};

/// One claim. Values are in hundredths, so that cents compare exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Cents.
    Money(u64),
    /// Hundredths of a percent point.
    Percent(u64),
    /// Month from 1 and day.
    Date(u8, u8),
    /// Letters and digits in capitals, e.g. a policy number.
    Identifier(String),
    /// Hundredths.
    Number(u64),
}

impl Claim {
    /// Whether a text with these claims supports this one: the same value, of the same kind or without a kind.
    #[must_use]
    pub fn is_supported_by(&self, known: &BTreeSet<Self>) -> bool {
        if known.contains(self) {
            return true;
        }
        match self {
            Self::Money(value) | Self::Percent(value) => known.contains(&Self::Number(*value)),
            Self::Number(value) => {
                known.contains(&Self::Money(*value)) || known.contains(&Self::Percent(*value))
            }
            Self::Date(..) | Self::Identifier(_) => false,
        }
    }
}

/// Every claim of a text. Spelled numbers below ten are no claims: they are mostly figures of speech.
#[must_use]
pub fn claims(text: &str) -> BTreeSet<Claim> {
    let tokens: Vec<String> = text
        .split(|c: char| c.is_whitespace() || matches!(c, ';' | '(' | ')' | '"'))
        .map(|t| t.trim_matches(|c: char| matches!(c, '.' | ',' | '?' | '!' | ':' | '\'')).to_lowercase())
        .filter(|t| !t.is_empty())
        .collect();
    let mut found = BTreeSet::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1).map_or("", String::as_str);
        let (claim, used) = read(token, next, &tokens[at..]);
        found.extend(claim);
        at += used;
    }
    found
}

/// The claim that starts here, and the number of tokens it takes.
fn read(token: &str, next: &str, rest: &[String]) -> (Option<Claim>, usize) {
    if let Some(month) = MONTHS.iter().position(|m| *m == token) {
        let month = u8::try_from(month + 1).unwrap_or(0);
        if let Some(day) = next.parse::<u8>().ok().filter(|d| (1..=31).contains(d)) {
            return (Some(Claim::Date(month, day)), 2);
        }
        return (None, 1);
    }
    if let Some(value) = token.strip_prefix('$').and_then(hundredths) {
        return (Some(Claim::Money(value)), 1);
    }
    if let Some(value) = token.strip_suffix('%').and_then(hundredths) {
        return (Some(Claim::Percent(value)), 1);
    }
    if let Some(value) = hundredths(token) {
        return (Some(of_kind(value, next)), 1);
    }
    if token.bytes().any(|b| b.is_ascii_digit()) {
        let letters = token.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
        return (Some(Claim::Identifier(letters)), 1);
    }
    let (value, used) = spelled(rest);
    if used == 0 {
        return (None, 1);
    }
    let after = rest.get(used).map_or("", String::as_str);
    ((value >= 10).then(|| of_kind(value * 100, after)), used)
}

fn of_kind(value: u64, next: &str) -> Claim {
    match next {
        "percent" => Claim::Percent(value),
        "dollar" | "dollars" => Claim::Money(value),
        _ => Claim::Number(value),
    }
}

/// `1,250.5` in hundredths; `None` for anything but digits with separators.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.replace(',', "").parse().ok()?;
    let part: u64 = match part.len() {
        0 => 0,
        1 => part.parse::<u64>().ok()? * 10,
        2 => part.parse().ok()?,
        _ => return None,
    };
    whole.checked_mul(100)?.checked_add(part)
}

/// Value of a run of number words, and its length; length 0 when there is none.
fn spelled(tokens: &[String]) -> (u64, usize) {
    let (mut total, mut group, mut used) = (0u64, 0u64, 0usize);
    'tokens: for token in tokens {
        for word in token.split('-') {
            let place = |words: &[&str]| {
                let found = words.iter().position(|w| !w.is_empty() && *w == word);
                found.and_then(|v| u64::try_from(v).ok())
            };
            let (small, tens) = (place(&ONES), place(&TENS));
            match (small, tens, word) {
                (Some(value), _, _) => group += value,
                (_, Some(value), _) => group += value * 10,
                (_, _, "hundred") if used > 0 => group = group.max(1) * 100,
                (_, _, "thousand") if used > 0 => {
                    total += group.max(1) * 1000;
                    group = 0;
                }
                _ => break 'tokens,
            }
        }
        used += 1;
    }
    (total + group, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Claim> {
        claims(text).into_iter().collect()
    }

    #[test]
    fn amounts_percents_dates_identifiers_and_numbers_are_found() {
        assert_eq!(
            all("It is $1,250.50, up 12%, for CP-48213 on March 14, with 90 days."),
            [
                Claim::Money(125_050),
                Claim::Percent(1_200),
                Claim::Date(3, 14),
                Claim::Identifier("CP48213".into()),
                Claim::Number(9_000),
            ]
        );
    }

    #[test]
    fn spelled_and_written_numbers_are_the_same_claim() {
        assert_eq!(all("thirteen thousand one hundred dollars"), all("$13,100"));
        assert_eq!(all("forty-two percent"), all("42%"));
        assert_eq!(all("One moment, two of us"), []);
    }

    #[test]
    fn a_number_supports_an_amount_of_the_same_value_and_nothing_supports_another_date() {
        let known = claims("premium 1250, renewal on April 2");
        assert!(Claim::Money(125_000).is_supported_by(&known));
        assert!(!Claim::Money(125_100).is_supported_by(&known));
        assert!(!Claim::Date(4, 3).is_supported_by(&known));
    }
}
