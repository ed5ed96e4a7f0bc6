//! Values of slots, and texts with their slots filled.

use std::collections::BTreeMap;

use chrono::{Datelike, Days, NaiveDate};
use domain::pack::{AxisValue, Grammar, Piece, SlotKind, pieces};

use crate::error::DraftError;
use crate::rng::Stream;

/// Fills templates for one dialogue: slots keep their value, phrases and variants are dealt without replacement.
#[derive(Debug)]
pub struct Filler<'a> {
    stream: Stream,
    slots: BTreeMap<&'a str, String>,
    phrases: BTreeMap<&'a str, &'a [String]>,
    /// Indices not dealt yet, by the place of the list.
    bags: BTreeMap<String, Vec<usize>>,
}

impl<'a> Filler<'a> {
    /// Draws every slot of the row.
    #[must_use]
    pub fn new(grammar: &'a Grammar, values: &[&'a AxisValue], mut stream: Stream) -> Self {
        let mut slots: BTreeMap<&str, String> = BTreeMap::new();
        let mut phrases: BTreeMap<&str, &[String]> = BTreeMap::new();
        let mut drawn = Drawn::default();
        for (name, list) in grammar.phrases.iter().chain(values.iter().flat_map(|v| &v.phrases)) {
            phrases.insert(name, list);
        }
        for (name, texts) in values.iter().flat_map(|v| &v.set) {
            slots.insert(name, one_of(texts.texts(), &mut stream));
        }
        for slot in &grammar.slots {
            slots.insert(&slot.name, draw(&slot.name, &slot.is, &mut drawn, &mut stream));
        }
        Self { stream, slots, phrases, bags: BTreeMap::new() }
    }

    /// The stream of the dialogue, for choices that are no texts.
    pub const fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// One of the variants of `list`; none comes twice before all came once.
    pub fn pick<'t>(&mut self, list: &str, texts: &'t [String]) -> &'t str {
        let bag = self.bags.entry(list.to_owned()).or_default();
        if bag.is_empty() {
            bag.extend(0..texts.len());
            self.stream.shuffle(bag);
        }
        bag.pop().and_then(|i| texts.get(i)).map_or("", String::as_str)
    }

    /// A text as written, with its slots filled.
    ///
    /// # Errors
    /// When a slot is not known in this row.
    pub fn fill(&mut self, template: &str) -> Result<String, DraftError> {
        let fault = |detail: String| DraftError::Template { template: template.to_owned(), detail };
        let mut text = String::new();
        for piece in pieces(template).map_err(fault)? {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Slot(name) => match (self.slots.get(name), self.phrases.get(name).copied()) {
                    (Some(value), _) => text.push_str(value),
                    (None, Some(list)) => text.push_str(self.pick(&format!("phrase {name}"), list)),
                    (None, None) => return Err(fault(format!("{name:?} has no value"))),
                },
            }
        }
        Ok(with_articles(&text))
    }

    /// As [`Self::fill`] for one of the variants, with capitals at the start of every sentence.
    ///
    /// # Errors
    /// When a slot is not known in this row.
    pub fn say(&mut self, list: &str, texts: &[String]) -> Result<String, DraftError> {
        let template = self.pick(list, texts);
        Ok(with_capitals(&self.fill(template)?))
    }
}

fn one_of(texts: &[String], stream: &mut Stream) -> String {
    texts.get(stream.index(texts.len())).cloned().unwrap_or_default()
}

fn stepped(min: u64, max: u64, step: u64, stream: &mut Stream) -> u64 {
    min + stream.below((max - min) / step + 1) * step
}

/// What the slots before one hold, for those that refer to them.
#[derive(Debug, Default)]
struct Drawn<'a> {
    /// Numbers, and money in cents.
    amounts: BTreeMap<&'a str, u64>,
    days: BTreeMap<&'a str, NaiveDate>,
}

impl Drawn<'_> {
    fn amount(&self, slot: &str) -> u64 {
        self.amounts.get(slot).copied().unwrap_or_default()
    }
}

fn draw<'a>(name: &'a str, kind: &SlotKind, drawn: &mut Drawn<'a>, stream: &mut Stream) -> String {
    match kind {
        SlotKind::Pick(texts) => one_of(texts, stream),
        SlotKind::Number { min, max, step } => {
            let number = stepped(*min, *max, *step, stream);
            drawn.amounts.insert(name, number);
            number.to_string()
        }
        SlotKind::Money { min_cents, max_cents, step_cents } => {
            let cents = stepped(*min_cents, *max_cents, *step_cents, stream);
            drawn.amounts.insert(name, cents);
            money(cents)
        }
        SlotKind::Raised { money: base, percent } => {
            let raised = drawn.amount(base) * (100 + drawn.amount(percent)) / 10_000 * 100;
            drawn.amounts.insert(name, raised);
            money(raised)
        }
        SlotKind::Share { money: base, min_percent, max_percent } => {
            let percent = stepped(*min_percent, *max_percent, 1, stream);
            let share = drawn.amount(base) * percent / 10_000 * 100;
            drawn.amounts.insert(name, share);
            money(share)
        }
        SlotKind::Date { from, days, year } => {
            let day = later(*from, stream.below(u64::from(*days) + 1));
            drawn.days.insert(name, day);
            date(day, *year)
        }
        SlotKind::Later { date: base, days } => {
            let day = later(drawn.days.get(base.as_str()).copied().unwrap_or_default(), drawn.amount(days));
            drawn.days.insert(name, day);
            date(day, false)
        }
        SlotKind::Pattern(pattern) => pattern
            .chars()
            .map(|c| if c == '#' { char::from(b'1' + stream.below(9).to_le_bytes()[0]) } else { c })
            .collect(),
    }
}

fn later(day: NaiveDate, days: u64) -> NaiveDate {
    day.checked_add_days(Days::new(days)).unwrap_or(day)
}

/// `$1,250` or `$12.50`.
fn money(cents: u64) -> String {
    let digits = (cents / 100).to_string();
    let mut whole = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            whole.push(',');
        }
        whole.push(digit);
    }
    if cents.is_multiple_of(100) { format!("${whole}") } else { format!("${whole}.{:02}", cents % 100) }
}

/// `March 14` or `March 14, 1961`.
fn date(day: NaiveDate, year: bool) -> String {
    let month = day.format("%B");
    if year { format!("{month} {}, {}", day.day(), day.year()) } else { format!("{month} {}", day.day()) }
}

/// "an" before the vowels that a filled slot may start with; "u" is left alone ("a used press").
fn with_articles(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        out.push_str(word);
        let vowel = |next: &&str| next.to_lowercase().starts_with(['a', 'e', 'i', 'o']);
        if matches!(word, "a" | "A") && words.peek().is_some_and(vowel) {
            out.push('n');
        }
        if words.peek().is_some() {
            out.push(' ');
        }
    }
    out
}

/// Capital letters at the start and after the end of every sentence.
fn with_capitals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at_start = true;
    let mut ended = false;
    for c in text.chars() {
        if c.is_whitespace() {
            at_start |= ended;
        } else {
            ended = matches!(c, '.' | '?' | '!');
        }
        if at_start && c.is_alphanumeric() {
            out.extend(c.to_uppercase());
            at_start = false;
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_with_commas_and_cents_only_when_there_are_any() {
        assert_eq!(money(125_000), "$1,250");
        assert_eq!(money(1_250), "$12.50");
        assert_eq!(money(123_456_705), "$1,234,567.05");
        assert_eq!(money(40_000), "$400");
    }

    #[test]
    fn dates_are_written_as_they_are_spoken() {
        let day = NaiveDate::from_ymd_opt(1961, 5, 4).expect("is a day");
        assert_eq!(date(day, false), "May 4");
        assert_eq!(date(day, true), "May 4, 1961");
    }

    #[test]
    fn articles_follow_what_fills_the_slot() {
        assert_eq!(with_articles("a animal clinic of a bakery"), "an animal clinic of a bakery");
        assert_eq!(
            with_articles("A electrician with a used press, a"),
            "An electrician with a used press, a"
        );
    }

    #[test]
    fn sentences_start_with_capitals_and_amounts_do_not_end_them() {
        assert_eq!(with_capitals("lisinopril. it is $12.50 now? yes."), "Lisinopril. It is $12.50 now? Yes.");
    }
}
