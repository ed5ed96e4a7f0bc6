//! Numbers in words.

use spoken::{ONES, TENS};

/// What a run of number words says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Hundredths.
    Value(u64),
    /// Two numbers said together, each below 100, the second said with two digits.
    Pair(u64, u64),
    /// At least three digits one by one.
    Digits(String),
    /// Numbers side by side that belong to nothing.
    Several(Vec<u64>),
}

/// The run of number words at the start: what it says, and the number of tokens it takes.
pub(super) fn spelled(tokens: &[String]) -> Option<(Reading, usize)> {
    let (words, ends) = number_words(tokens);
    let mut values = Vec::new();
    let mut at = 0;
    while let Some((value, next)) = cardinal(&words, at) {
        values.push(value);
        at = next;
    }
    if values.is_empty() {
        return None;
    }
    let used = ends.get(at - 1).copied()?;
    let reading = match *values {
        [value] => {
            let (fraction, more) = fraction(&tokens[used..]);
            return Some((Reading::Value(value * 100 + fraction), used + more));
        }
        [a, b] if (1..100).contains(&a) && (10..100).contains(&b) => Reading::Pair(a, b),
        // "Nineteen oh one".
        [a, 0, b] if (10..100).contains(&a) && (1..10).contains(&b) => Reading::Pair(a, b),
        _ if values.len() >= 3 && values.iter().all(|v| *v < 10) => {
            Reading::Digits(values.iter().map(u64::to_string).collect())
        }
        _ => Reading::Several(values),
    };
    Some((reading, used))
}

/// A day of a month in words, "fourteen" or "fourteenth": its number and tokens.
pub(super) fn spelled_day(tokens: &[String]) -> Option<(u8, usize)> {
    let first = tokens.first()?;
    let joined = |a: &str, b: &str| Some(tens(a)? + ordinal(b).or_else(|| unit(b))?);
    let day = |n: u64| u8::try_from(n).ok().filter(|d| (1..=31).contains(d));
    if let Some((a, b)) = first.split_once('-') {
        return Some((day(joined(a, b)?)?, 1));
    }
    if let Some(n) = tokens.get(1).and_then(|second| joined(first, second)) {
        return Some((day(n)?, 2));
    }
    let n = ordinal(first).or_else(|| small(first)).or_else(|| tens(first))?;
    Some((day(n)?, 1))
}

/// Value of "first" to "nineteenth", "twentieth" and "thirtieth".
fn ordinal(word: &str) -> Option<u64> {
    const IRREGULAR: [(&str, u64); 8] = [
        ("first", 1),
        ("second", 2),
        ("third", 3),
        ("fifth", 5),
        ("eighth", 8),
        ("ninth", 9),
        ("twelfth", 12),
        ("twentieth", 20),
    ];
    let irregular = IRREGULAR.iter().find(|(w, _)| *w == word).map(|(_, n)| *n);
    irregular.or_else(|| (word == "thirtieth").then_some(30)).or_else(|| small(word.strip_suffix("th")?))
}

/// Splits tokens into number words as far as there are only such; each with the number of tokens up to its end.
fn number_words(tokens: &[String]) -> (Vec<&str>, Vec<usize>) {
    let (mut words, mut ends): (Vec<&str>, Vec<usize>) = (Vec::new(), Vec::new());
    for (i, token) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1).map_or("", String::as_str);
        let is_word = |w: &str| value_word(w) || scale(w).is_some();
        let article = matches!(token.as_str(), "a" | "an") && scale(next).is_some();
        let and = token == "and"
            && words.last().is_some_and(|w| scale(w).is_some())
            && value_word(next.split('-').next().unwrap_or(""));
        if article || and || token.split('-').all(is_word) {
            for word in token.split('-') {
                words.push(word);
                ends.push(i + 1);
            }
        } else {
            break;
        }
    }
    (words, ends)
}

fn value_word(word: &str) -> bool {
    small(word).is_some() || tens(word).is_some() || word == "oh"
}

/// Zero to nineteen.
fn small(word: &str) -> Option<u64> {
    ONES.iter().position(|w| *w == word).and_then(|v| u64::try_from(v).ok())
}

fn unit(word: &str) -> Option<u64> {
    small(word).filter(|n| (1..10).contains(n))
}

/// Twenty to ninety.
fn tens(word: &str) -> Option<u64> {
    TENS.iter().position(|w| !w.is_empty() && *w == word).and_then(|v| u64::try_from(v * 10).ok())
}

fn scale(word: &str) -> Option<u64> {
    Some(match word {
        "hundred" => 100,
        "thousand" => 1_000,
        "million" => 1_000_000,
        _ => return None,
    })
}

/// Factor of a word after figures: "13 thousand".
pub(super) fn multiplier(word: &str) -> Option<u64> {
    scale(word)
}

/// One number as English counts, and where the next begins.
fn cardinal(words: &[&str], start: usize) -> Option<(u64, usize)> {
    let word = |i: usize| words.get(i).copied().unwrap_or("");
    let (mut total, mut at) = (0u64, start);
    let mut last_scale = u64::MAX;
    loop {
        let from = if at > start && word(at) == "and" { at + 1 } else { at };
        let Some((mut group, mut next)) = below_hundred(words, from) else { break };
        // "Twenty two hundred thousand" does not come up; "two hundred thousand" does.
        if word(next) == "hundred" && last_scale > 100 {
            group *= 100;
            next += 1;
            let rest = if word(next) == "and" { next + 1 } else { next };
            if let Some((more, end)) = below_hundred(words, rest) {
                group += more;
                next = end;
            }
        }
        match scale(word(next)).filter(|s| *s >= 1_000 && *s < last_scale) {
            Some(factor) => {
                total += group * factor;
                last_scale = factor;
                at = next + 1;
            }
            None if at == start || last_scale != u64::MAX => {
                total += group;
                at = next;
                break;
            }
            None => break,
        }
    }
    (at > start).then_some((total, at))
}

fn below_hundred(words: &[&str], at: usize) -> Option<(u64, usize)> {
    let word = words.get(at)?;
    if let Some(ten) = tens(word) {
        let one = words.get(at + 1).and_then(|w| unit(w));
        return Some((ten + one.unwrap_or(0), at + 1 + usize::from(one.is_some())));
    }
    match *word {
        "a" | "an" => Some((1, at + 1)),
        "oh" => Some((0, at + 1)),
        _ => small(word).map(|n| (n, at + 1)),
    }
}

/// "point five", "point one two", "and a half": hundredths and tokens.
fn fraction(tokens: &[String]) -> (u64, usize) {
    let word = |i: usize| tokens.get(i).map_or("", String::as_str);
    if word(0) == "and" && word(1) == "a" && word(2) == "half" {
        return (50, 3);
    }
    if word(0) != "point" {
        return (0, 0);
    }
    let digit = |i: usize| small(word(i)).filter(|n| *n < 10);
    match (digit(1), digit(2)) {
        (Some(a), Some(b)) if digit(3).is_none() => (a * 10 + b, 3),
        (Some(a), None) => (a * 10, 2),
        _ => (0, 0),
    }
}
