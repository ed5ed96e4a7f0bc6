//! Reading a text token by token.

use std::collections::BTreeSet;

use spoken::MONTHS;

use super::Claim;
use super::numbers::{Reading, multiplier, spelled, spelled_day};

/// Digits from which letters and digits together name something.
const IDENTIFIER_DIGITS: usize = 3;

/// Every claim of a text. Spelled numbers below ten without a unit are no claims: they are mostly figures of speech.
#[must_use]
pub fn claims(text: &str) -> BTreeSet<Claim> {
    let tokens: Vec<String> = text
        .split(|c: char| c.is_whitespace() || matches!(c, ';' | '(' | ')' | '"' | '\u{2013}' | '\u{2014}'))
        .map(|t| t.trim_matches(|c: char| matches!(c, '.' | ',' | '?' | '!' | ':' | '\'')).to_lowercase())
        .filter(|t| !t.is_empty())
        .collect();
    let mut found = BTreeSet::new();
    let mut at = 0;
    while let Some(rest) = tokens.get(at..).filter(|rest| !rest.is_empty()) {
        at += read(rest, &mut found).max(1);
    }
    found
}

fn word(tokens: &[String], at: usize) -> &str {
    tokens.get(at).map_or("", String::as_str)
}

/// Adds what starts here; returns the number of tokens it takes, 0 for nothing.
fn read(rest: &[String], found: &mut BTreeSet<Claim>) -> usize {
    if let Some((claim, used)) = date(rest) {
        found.insert(claim);
        return used;
    }
    let token = word(rest, 0);
    if token.bytes().any(|b| b.is_ascii_digit()) {
        written(token, rest, found)
    } else {
        in_words(rest, found)
    }
}

/// `March 14`, "March fourteenth", "the fourteenth of March", `14 March`.
fn date(rest: &[String]) -> Option<(Claim, usize)> {
    if let Some(month) = month(word(rest, 0)) {
        let (day, used) = day(rest.get(1..)?)?;
        return Some((Claim::Date(month, day), 1 + used));
    }
    let (day, used) = day(rest)?;
    let of = usize::from(word(rest, used) == "of");
    let month = month(word(rest, used + of))?;
    Some((Claim::Date(month, day), used + of + 1))
}

fn month(word: &str) -> Option<u8> {
    let name =
        |m: &&str| *m == word || (word.len() >= 3 && word != "mar" && m.starts_with(word) && word.len() <= 4);
    MONTHS.iter().position(name).and_then(|m| u8::try_from(m + 1).ok())
}

fn day(rest: &[String]) -> Option<(u8, usize)> {
    let token = word(rest, 0);
    let figures = ["st", "nd", "rd", "th"].iter().find_map(|s| token.strip_suffix(s)).unwrap_or(token);
    let written = figures.parse::<u8>().ok().filter(|d| (1..=31).contains(d)).map(|d| (d, 1));
    written.or_else(|| spelled_day(rest))
}

/// A token with figures.
fn written(token: &str, rest: &[String], found: &mut BTreeSet<Claim>) -> usize {
    if let Some(used) = amount(token, rest, found) {
        return used;
    }
    if let Some(claims) = clock(token).or_else(|| day_of_month(token)).or_else(|| figure_date(token)) {
        found.extend(claims);
        return 1;
    }
    if let Some((figures, unit)) = token.split_once('-')
        && let Some(value) = hundredths(figures)
    {
        // `90-day`, `10-15`, `$5-a-month` by way of its figures.
        found.insert(of_kind(value, &[unit.to_owned()]).0);
        found.extend(hundredths(unit).map(Claim::Number));
        return 1;
    }
    let split = token.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
    if let Some((value, unit)) = hundredths(&token[..split]).zip(unit(&token[split..])) {
        found.insert(Claim::Dose(value, unit));
        return 1;
    }
    let names = !token.contains('/') || token.bytes().any(|b| b.is_ascii_alphabetic());
    if names && token.bytes().filter(u8::is_ascii_digit).count() >= IDENTIFIER_DIGITS {
        let name = token.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
        found.insert(Claim::Identifier(name));
    }
    1
}

/// `$1,250.50`, `$13.1k`, `12%`, `90`, each with the words after it that belong to it.
fn amount(token: &str, rest: &[String], found: &mut BTreeSet<Claim>) -> Option<usize> {
    let times = |value: u64, used: usize| match multiplier(word(rest, used)) {
        Some(factor) => (value.saturating_mul(factor), used + 1),
        None => (value, used),
    };
    if let Some(figures) = token.strip_prefix('$') {
        let short = figures.strip_suffix('k').and_then(hundredths).map(|v| (v.saturating_mul(1_000), 1));
        let (value, used) = short.or_else(|| hundredths(figures).map(|v| times(v, 1)))?;
        found.insert(Claim::Money(value));
        return Some(used);
    }
    if let Some(value) = token.strip_suffix('%').and_then(hundredths) {
        found.insert(Claim::Percent(value));
        return Some(1);
    }
    let (value, used) = times(hundredths(token)?, 1);
    let (claim, more) = of_kind(value, rest.get(used..).unwrap_or_default());
    found.insert(claim);
    Some(used + more)
}

/// `8:30`, `8:30pm`, `6pm`.
fn clock(token: &str) -> Option<Vec<Claim>> {
    let bare = ["am", "pm", "a.m", "p.m"].iter().find_map(|s| token.strip_suffix(s));
    let (hour, minute) = match bare.unwrap_or(token).split_once(':') {
        Some((hour, minute)) => (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?),
        None => (bare?.parse::<u16>().ok()?, 0),
    };
    (hour < 24 && minute < 60).then(|| vec![Claim::Time(hour % 12 * 60 + minute)])
}

/// `14th`.
fn day_of_month(token: &str) -> Option<Vec<Claim>> {
    let figures = ["st", "nd", "rd", "th"].iter().find_map(|s| token.strip_suffix(s))?;
    let day = figures.parse::<u8>().ok().filter(|d| (1..=31).contains(d))?;
    Some(vec![Claim::Day(day)])
}

/// `3/14`, `3/14/2026`, `2026-03-14`.
fn figure_date(token: &str) -> Option<Vec<Claim>> {
    let numbers = |by: char| token.split(by).map(|p| p.parse::<u16>().ok()).collect::<Option<Vec<_>>>();
    let (month, day, year) = match (numbers('/').as_deref(), numbers('-').as_deref()) {
        (Some([month, day]), _) => (*month, *day, None),
        (Some([month, day, year]), _) => (*month, *day, Some(*year)),
        (_, Some([year, month, day])) if *year > 31 => (*month, *day, Some(*year)),
        _ => return None,
    };
    let date = Claim::Date(u8::try_from(month).ok()?, u8::try_from(day).ok()?);
    let valid = (1..=12).contains(&month) && (1..=31).contains(&day);
    let year = year.map(|y| Claim::Number(u64::from(y) * 100));
    valid.then(|| std::iter::once(date).chain(year).collect())
}

/// Number words, with the words after them that say what is counted.
fn in_words(rest: &[String], found: &mut BTreeSet<Claim>) -> usize {
    let Some((reading, used)) = spelled(rest) else { return 0 };
    let after = rest.get(used..).unwrap_or_default();
    match reading {
        Reading::Value(value) => {
            let (claim, more) = of_kind(value, after);
            if !matches!(claim, Claim::Number(small) if small < 1_000) {
                found.insert(claim);
            }
            return used + more;
        }
        Reading::Pair(a, b) => {
            let whole = (a * 100 + b) * 100;
            match of_kind(whole, after) {
                (Claim::Number(_), _) => found.insert(Claim::Pair(a, b)),
                // "Eight thirty p.m." is a time; "twelve fifty percent" is not said.
                (Claim::Time(_), more) => {
                    let minutes = u16::try_from(a % 12 * 60 + b).unwrap_or(u16::MAX);
                    found.insert(Claim::Time(minutes));
                    return used + more;
                }
                (claim, more) => {
                    found.insert(claim);
                    return used + more;
                }
            };
        }
        Reading::Digits(digits) => {
            found.insert(Claim::Digits(digits));
        }
        Reading::Several(values) => {
            found.extend(values.into_iter().filter(|v| *v >= 10).map(|v| Claim::Number(v * 100)));
        }
    }
    used
}

/// The claim that a value makes with the words after it, and how many of those it takes.
fn of_kind(value: u64, after: &[String]) -> (Claim, usize) {
    let next = word(after, 0);
    if let Some(unit) = unit(next) {
        return (Claim::Dose(value, unit), 1);
    }
    match next {
        "percent" => (Claim::Percent(value), 1),
        "per" if word(after, 1) == "cent" => (Claim::Percent(value), 2),
        "dollar" | "dollars" | "bucks" => {
            let (cents, more) = cents(after.get(1..).unwrap_or_default());
            (Claim::Money(value + cents), 1 + more)
        }
        "cent" | "cents" => (Claim::Money(value / 100), 1),
        "am" | "pm" | "a.m" | "p.m" | "o'clock" => (hour(value), 1),
        "a" | "p" if word(after, 1) == "m" => (hour(value), 2),
        _ => (Claim::Number(value), 0),
    }
}

/// "and fifty cents" after dollars.
fn cents(after: &[String]) -> (u64, usize) {
    let and = usize::from(word(after, 0) == "and");
    let rest = after.get(and..).unwrap_or_default();
    let figures = word(rest, 0).parse::<u64>().ok().map(|n| (n, 1));
    let number = figures.or_else(|| match spelled(rest) {
        Some((Reading::Value(value), used)) => Some((value / 100, used)),
        _ => None,
    });
    match number {
        Some((cents, used)) if cents < 100 && matches!(word(rest, used), "cent" | "cents") => {
            (cents, and + used + 1)
        }
        _ => (0, 0),
    }
}

fn hour(value: u64) -> Claim {
    match u16::try_from(value / 100) {
        Ok(hour) if hour < 24 => Claim::Time(hour % 12 * 60),
        // "Eight thirty" as 830 in front of a.m. is read by the caller.
        _ => Claim::Time(u16::MAX),
    }
}

/// A unit of medicine under one name.
fn unit(word: &str) -> Option<&'static str> {
    Some(match word {
        "mg" | "milligram" | "milligrams" => "milligrams",
        "mcg" | "microgram" | "micrograms" => "micrograms",
        "ml" | "milliliter" | "milliliters" => "milliliters",
        "gram" | "grams" => "grams",
        _ => return None,
    })
}

/// `1,250.5` in hundredths; `None` for anything but digits with separators.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let figures = |t: &str| t.bytes().all(|b| b.is_ascii_digit() || b == b',');
    let whole: u64 = Some(whole).filter(|w| figures(w)).and_then(|w| w.replace(',', "").parse().ok())?;
    let part: u64 = match part.len() {
        0 => 0,
        1 => part.parse::<u64>().ok()? * 10,
        2 => part.parse().ok()?,
        _ => return None,
    };
    whole.checked_mul(100)?.checked_add(part)
}
