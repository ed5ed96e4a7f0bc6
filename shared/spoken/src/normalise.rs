//! A text as spoken words, with the span of words of every written token.

use std::ops::Range;

use crate::ascii::to_ascii_punctuation;
use crate::classes::{digit_by_digit, lexical, numeric};
use crate::numbers::{decimal, digits, is_decimal, ordinal};
use crate::tables::{announces_identifier, currency, dotted_abbreviation, is_scale_word, month_number, unit};

/// One whitespace-separated token as written, and the words it is said with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenToken {
    /// As written, punctuation included.
    pub text: String,
    /// Its words in [`Spoken::words`]; empty for punctuation alone.
    pub span: Range<usize>,
    /// The punctuation mark after it that shapes the melody: one of `,.!?;:`.
    pub mark: Option<char>,
}

/// A text as it is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoken {
    /// The tokens in order; their spans follow each other and cover all words.
    pub tokens: Vec<WrittenToken>,
    /// Lower-case words with letters and apostrophes only.
    pub words: Vec<String>,
}

impl Spoken {
    /// The words joined for a speech engine, with the punctuation that shapes the melody.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for token in &self.tokens {
            for word in &self.words[token.span.clone()] {
                if !out.is_empty() {
                    out.push(' ');
                }
                out.push_str(word);
            }
            if out.ends_with(char::is_alphanumeric) {
                out.extend(token.mark);
            }
        }
        out
    }
}

/// Says a text. Written token `i` is the `i`-th whitespace-separated token of `text`.
#[must_use]
pub fn normalise(text: &str) -> Spoken {
    let written: Vec<&str> = text.split_whitespace().collect();
    let cleaned: Vec<String> = written.iter().map(|t| to_ascii_punctuation(t).trim().to_owned()).collect();
    let mut spoken = Spoken::default();
    for (i, token) in written.iter().enumerate() {
        let start = spoken.words.len();
        spoken.words.extend(say(&cleaned, i));
        let span = start..spoken.words.len();
        spoken.tokens.push(WrittenToken { text: (*token).to_owned(), span, mark: mark_after(&cleaned, i) });
    }
    spoken
}

const OPENING: [char; 5] = ['"', '\'', '(', '[', '{'];
const CLOSING: [char; 11] = ['"', '\'', ')', ']', '}', ',', '.', '!', '?', ';', ':'];

fn core_of(token: &str) -> &str {
    token.trim_start_matches(OPENING).trim_end_matches(CLOSING)
}

/// The mark that closes a token; the dot of an abbreviation is one only at the end of the text.
fn mark_after(tokens: &[String], i: usize) -> Option<char> {
    let closed = tokens[i].trim_end_matches(['"', '\'', ')', ']', '}']);
    let mark = closed.chars().last().filter(|c| ",.!?;:".contains(*c))?;
    let lower = core_of(closed).to_lowercase();
    let number_follows = tokens.get(i + 1).is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()));
    let abbreviated =
        dotted_abbreviation(&lower).is_some() || lower == "st" || (lower == "no" && number_follows);
    (mark != '.' || !abbreviated || i + 1 == tokens.len()).then_some(mark)
}

fn say(tokens: &[String], i: usize) -> Vec<String> {
    let token = tokens[i].as_str();
    // An em dash glued two words together.
    if token.contains(' ') {
        let parts: Vec<String> =
            token.split(' ').filter(|p| *p != "-" && !p.is_empty()).map(str::to_owned).collect();
        return (0..parts.len()).flat_map(|p| say(&parts, p)).collect();
    }
    let core = core_of(token);
    let words = in_context(tokens, i, core)
        .or_else(|| possessive(core))
        .or_else(|| numeric(core))
        .unwrap_or_else(|| lexical(core));
    let said: Vec<String> = words.into_iter().filter_map(|w| spoken_form(&w)).collect();
    if said.is_empty() && core.contains(|c: char| c.is_ascii_alphanumeric()) {
        // A reading that left nothing to pronounce: piece by piece, so that no written word is silent.
        return digit_by_digit(core).into_iter().filter_map(|w| spoken_form(&w)).collect();
    }
    said
}

/// Letters and apostrophes between letters; nothing else can be pronounced.
fn spoken_form(word: &str) -> Option<String> {
    let letters: String = word.chars().filter(|c| c.is_alphabetic() || *c == '\'').collect();
    let trimmed = letters.trim_matches('\'').to_lowercase();
    (!trimmed.is_empty()).then_some(trimmed)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Readings that depend on the neighbours.
fn in_context(tokens: &[String], i: usize, core: &str) -> Option<Vec<String>> {
    let lower = core.to_lowercase();
    let core_at = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |t| core_of(t));
    let (previous, next) = (core_at(i.checked_sub(1)), core_at(Some(i + 1)));
    if let Some(said) = abbreviation(tokens, i, &lower, previous, next) {
        return Some(said);
    }
    if is_scale_word(&lower) {
        let sign = previous.chars().next().filter(|&c| currency(c).is_some())?;
        return Some(vec![lower, currency(sign)?[1].to_owned()]);
    }
    if let Some((one, many)) = unit(core).filter(|_| is_decimal(previous)) {
        return Some(words(if previous == "1" { one } else { many }));
    }
    if let Some(sign) = core.chars().next().filter(|&c| currency(c).is_some()) {
        let amount = &core[sign.len_utf8()..];
        return (is_decimal(amount) && is_scale_word(&next.to_lowercase())).then(|| decimal(amount));
    }
    if core.is_empty() || !core.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let before = core_at(i.checked_sub(2)).to_lowercase();
    if month_number(&previous.to_lowercase()).is_some() && core.len() <= 2 {
        let day: u64 = core.parse().ok().filter(|d| (1..=31).contains(d))?;
        return Some(ordinal(day));
    }
    let announced = announces_identifier(&previous.to_lowercase())
        || (announces_identifier(&before)
            && matches!(previous.to_lowercase().as_str(), "is" | "number" | "in" | "code" | "was"));
    if (announced && core.len() >= 3) || is_phone_part(tokens, i) {
        return Some(digits(core));
    }
    None
}

fn abbreviation(tokens: &[String], i: usize, lower: &str, previous: &str, next: &str) -> Option<Vec<String>> {
    let has_dot = tokens[i].trim_end_matches(['"', '\'', ')', ',', '?', '!', ';', ':']).ends_with('.');
    let next_is_name = next.starts_with(|c: char| c.is_uppercase());
    match lower {
        "no" if has_dot && next.starts_with(|c: char| c.is_ascii_digit()) => Some(words("number")),
        "st" if has_dot || previous.starts_with(char::is_uppercase) => {
            let street = previous.starts_with(char::is_uppercase) || !next_is_name;
            Some(words(if street { "street" } else { "saint" }))
        }
        "am" | "pm" if previous.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(words(if lower == "am" { "a m" } else { "p m" }))
        }
        // A sentence may end in one of these without being an abbreviation.
        "co" | "est" | "mar" | "dec" | "ms" | "inc" if has_dot && i + 1 == tokens.len() && lower != "inc" => {
            None
        }
        _ if has_dot => dotted_abbreviation(lower).map(words),
        _ => None,
    }
}

/// `555 123 4567` and `(555) 123-4567`: the groups of a telephone number.
fn is_phone_part(tokens: &[String], i: usize) -> bool {
    let group = |at: Option<usize>, len: usize| {
        at.and_then(|at| tokens.get(at))
            .map(|t| core_of(t))
            .is_some_and(|c| c.len() == len && c.bytes().all(|b| b.is_ascii_digit()))
    };
    let local = |at: usize| {
        tokens.get(at).map(|t| core_of(t)).is_some_and(|c| {
            c.len() == 8
                && c.bytes().enumerate().all(|(k, b)| if k == 3 { b == b'-' } else { b.is_ascii_digit() })
        })
    };
    let starts_at = |at: Option<usize>| {
        at.is_some_and(|at| group(Some(at), 3) && group(Some(at + 1), 3) && group(Some(at + 2), 4))
    };
    (group(Some(i), 3) && local(i + 1)) || (0..3).any(|back| starts_at(i.checked_sub(back)))
}

fn possessive(core: &str) -> Option<Vec<String>> {
    let stem = core.strip_suffix("'s").filter(|s| s.ends_with(|c: char| c.is_ascii_digit()))?;
    let mut said = numeric(stem)?;
    said.last_mut()?.push_str("'s");
    Some(said)
}
