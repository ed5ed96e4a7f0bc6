//! Claims: the amounts, percentages, doses, dates, times, identifiers and numbers that a text states.
//!
//! What is written and what is spoken is the same claim: `$13,100` and "thirteen thousand one hundred dollars", `March
//! 14` and "the fourteenth of March", `CP-48213` and "C P four eight two one three".

use std::collections::BTreeSet;
use std::fmt;

use spoken::MONTHS;

mod numbers;
mod reader;

pub use reader::claims;

/// One claim. Values are in hundredths, so that cents compare exactly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Cents.
    Money(u64),
    /// Hundredths of a percent point.
    Percent(u64),
    /// Hundredths of a unit of medicine, and the unit.
    Dose(u64, &'static str),
    /// Month from 1 and day.
    Date(u8, u8),
    /// Day of a month that is not named.
    Day(u8),
    /// Minutes after midnight or noon.
    Time(u16),
    /// Letters and digits in capitals, e.g. a policy number.
    Identifier(String),
    /// Digits said one by one.
    Digits(String),
    /// Two numbers said together: a year, a time, or dollars and cents.
    Pair(u64, u64),
    /// Hundredths.
    Number(u64),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |v: &u64| match v % 100 {
            0 => (v / 100).to_string(),
            rest => format!("{}.{rest:02}", v / 100),
        };
        match self {
            Self::Money(v) => write!(f, "${}", plain(v)),
            Self::Percent(v) => write!(f, "{}%", plain(v)),
            Self::Dose(v, unit) => write!(f, "{} {unit}", plain(v)),
            Self::Date(month, day) => {
                let name = MONTHS.get(usize::from(*month).saturating_sub(1)).copied().unwrap_or("month");
                write!(f, "{name} {day}")
            }
            Self::Day(day) => write!(f, "the {day}th"),
            Self::Time(minutes) => write!(f, "{}:{:02}", minutes / 60, minutes % 60),
            Self::Identifier(text) | Self::Digits(text) => write!(f, "{text:?}"),
            Self::Pair(a, b) => write!(f, "{a} {b}"),
            Self::Number(v) => f.write_str(&plain(v)),
        }
    }
}

/// Claims that have been made, and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Known(BTreeSet<Claim>);

impl Known {
    /// What one text holds.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut known = Self::default();
        known.learn(text);
        known
    }

    /// Adds what a text holds.
    pub fn learn(&mut self, text: &str) {
        for claim in claims(text) {
            match &claim {
                Claim::Identifier(text) => self.learn_digits(&digits_of(text)),
                Claim::Digits(text) => self.learn_digits(text),
                Claim::Number(v) | Claim::Money(v) if v % 100 == 0 && *v >= 10_000 => {
                    self.0.insert(Claim::Digits((v / 100).to_string()));
                }
                Claim::Date(_, day) => {
                    self.0.insert(Claim::Day(*day));
                }
                Claim::Pair(a, b) => self.0.extend(readings(*a, *b).into_iter().chain(parts(*a, *b))),
                _ => {}
            }
            self.0.insert(claim);
        }
    }

    fn learn_digits(&mut self, digits: &str) {
        if digits.len() >= 3 {
            self.0.extend(digits.parse::<u64>().ok().and_then(|n| n.checked_mul(100)).map(Claim::Number));
            self.0.insert(Claim::Digits(digits.to_owned()));
        }
    }

    /// Whether what is known holds this claim: the same value, of the same kind or without a kind.
    #[must_use]
    pub fn supports(&self, claim: &Claim) -> bool {
        let has = |claim: Claim| self.0.contains(&claim);
        if self.0.contains(claim) {
            return true;
        }
        match claim {
            Claim::Money(v) | Claim::Percent(v) | Claim::Dose(v, _) => has(Claim::Number(*v)),
            Claim::Number(v) => {
                let dose = |c: &Claim| matches!(c, Claim::Dose(known, _) if known == v);
                let hour = u16::try_from(v / 100).unwrap_or(u16::MAX);
                has(Claim::Money(*v))
                    || has(Claim::Percent(*v))
                    || self.0.iter().any(dose)
                    || (v % 100 == 0 && hour <= 12 && has(Claim::Time(hour % 12 * 60)))
            }
            Claim::Pair(a, b) => {
                readings(*a, *b).iter().any(|c| self.supports(c))
                    || parts(*a, *b).iter().all(|c| self.supports(c))
            }
            Claim::Identifier(text) => {
                let digits = digits_of(text);
                digits.len() >= 4 && has(Claim::Digits(digits))
            }
            Claim::Date(..) | Claim::Day(_) | Claim::Time(_) | Claim::Digits(_) => false,
        }
    }
}

fn digits_of(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// "Twelve fifty" may be 1250, $12.50 or half past twelve.
fn readings(a: u64, b: u64) -> Vec<Claim> {
    let mut found = vec![Claim::Number((a * 100 + b) * 100), Claim::Money(a * 100 + b)];
    if (1..=12).contains(&a) && b < 60 {
        found.extend(u16::try_from(a % 12 * 60 + b).map(Claim::Time));
    }
    found
}

/// Or two numbers after all.
fn parts(a: u64, b: u64) -> [Claim; 2] {
    [Claim::Number(a * 100), Claim::Number(b * 100)]
}

#[cfg(test)]
mod tests;
