//! From a written turn to the words an engine is given, and from their times back to the written tokens.

use std::ops::Range;

use spoken::normalise;
use spoken::script::clean_turn;

use crate::engine::Span;

/// Longest word given to an engine; what is longer is cut (a line of 5,000 letters is no word).
const MAX_WORD: usize = 64;

/// A word to say with the punctuation after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Say {
    /// Lower-case letters, digits and apostrophes; never empty.
    pub word: String,
    /// Pause after the word.
    pub pause: Option<Pause>,
}

/// How a word ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Inside a sentence.
    Comma,
    /// End of a statement.
    Stop,
    /// End of a question.
    Question,
}

/// A written token with the words that it is said as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaidToken {
    /// As written.
    pub text: String,
    /// Its words in [`Speech::words`]; empty when nothing is said for it.
    pub said: Range<usize>,
}

/// A turn as it will be said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Speech {
    /// Written tokens in order.
    pub tokens: Vec<SaidToken>,
    /// Words to say.
    pub words: Vec<Say>,
}

impl Speech {
    /// Reads a written turn; stage directions are not part of it ([`clean_turn`]).
    #[must_use]
    pub fn of(text: &str) -> Self {
        let spoken = normalise(&clean_turn(text));
        let mut speech = Self::default();
        for token in &spoken.tokens {
            let from = speech.words.len();
            let read = spoken.words.get(token.span.clone()).unwrap_or_default();
            for word in read {
                if let Some(word) = sayable(word) {
                    speech.words.push(Say { word, pause: None });
                }
            }
            let said = speech.words.len() > from;
            // "Dr. Smith" has no pause.
            let pauses = (said && !is_abbreviation(&token.text, read)) || is_mark(&token.text);
            if let Some(last) = speech.words.last_mut().filter(|_| pauses) {
                last.pause = pause_after(&token.text).or(last.pause);
            }
            speech.tokens.push(SaidToken { text: token.text.clone(), said: from..speech.words.len() });
        }
        if let Some(last) = speech.words.last_mut() {
            last.pause = match last.pause {
                Some(Pause::Question) => Some(Pause::Question),
                _ => Some(Pause::Stop),
            };
        }
        speech
    }

    /// Span of every written token: from its first timed word to its last.
    #[must_use]
    pub fn token_spans(&self, words: &[Option<Span>]) -> Vec<Option<Span>> {
        self.tokens
            .iter()
            .map(|token| {
                let timed = || words.get(token.said.clone()).unwrap_or_default().iter().flatten();
                let start = timed().map(|s| s.0).min()?;
                let end = timed().map(|s| s.1).max()?;
                (start < end).then_some((start, end))
            })
            .collect()
    }
}

/// A word in the letters that every engine reads as letters; `None` when none is left.
fn sayable(word: &str) -> Option<String> {
    let clean: String = word
        .chars()
        .flat_map(|c| plain(c).chars().chain(plain(c).is_empty().then_some(c)))
        .filter(|c| c.is_ascii_alphanumeric() || *c == '\'')
        .take(MAX_WORD)
        .collect::<String>()
        .to_ascii_lowercase();
    let clean = clean.trim_matches('\'');
    clean.contains(|c: char| c.is_ascii_alphanumeric()).then(|| clean.to_owned())
}

/// An accented Latin letter without its accent; empty for every other character.
const fn plain(c: char) -> &'static str {
    match c {
        '\u{c0}'..='\u{c5}' | '\u{e0}'..='\u{e5}' => "a",
        '\u{c6}' | '\u{e6}' => "ae",
        '\u{c7}' | '\u{e7}' => "c",
        '\u{c8}'..='\u{cb}' | '\u{e8}'..='\u{eb}' => "e",
        '\u{cc}'..='\u{cf}' | '\u{ec}'..='\u{ef}' => "i",
        '\u{d1}' | '\u{f1}' => "n",
        '\u{d2}'..='\u{d6}' | '\u{d8}' | '\u{f2}'..='\u{f6}' | '\u{f8}' => "o",
        '\u{d9}'..='\u{dc}' | '\u{f9}'..='\u{fc}' => "u",
        '\u{dd}' | '\u{fd}' | '\u{ff}' => "y",
        '\u{df}' => "ss",
        '\u{2018}' | '\u{2019}' => "'",
        _ => "",
    }
}

/// Whether the full stop belongs to the word: the token has letters only and is said as something else.
fn is_abbreviation(token: &str, read: &[String]) -> bool {
    let letters =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    token.ends_with('.')
        && !token.contains(|c: char| c.is_ascii_digit())
        && letters(token) != letters(&read.concat())
}

fn is_mark(token: &str) -> bool {
    token.chars().all(|c| !c.is_alphanumeric())
}

fn pause_after(token: &str) -> Option<Pause> {
    let tail = token.trim_end_matches(['"', '\'', ')', ']', '\u{201d}', '\u{2019}']);
    match tail.chars().next_back()? {
        '?' => Some(Pause::Question),
        '.' | '!' | '\u{2026}' => Some(Pause::Stop),
        ',' | ';' | ':' | '-' | '\u{2013}' | '\u{2014}' => Some(Pause::Comma),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_becomes_pauses_and_the_turn_ends_with_one() {
        let speech = Speech::of("Hello, \"is it you?\" Yes");
        let pauses: Vec<_> = speech.words.iter().map(|w| (w.word.as_str(), w.pause)).collect();
        assert_eq!(
            pauses,
            [
                ("hello", Some(Pause::Comma)),
                ("is", None),
                ("it", None),
                ("you", Some(Pause::Question)),
                ("yes", Some(Pause::Stop))
            ]
        );
    }

    #[test]
    fn the_full_stop_of_an_abbreviation_is_no_pause() {
        let speech = Speech::of("Ask Dr. Smith. He knows.");
        let pauses: Vec<_> = speech.words.iter().map(|w| w.pause.is_some()).collect();
        assert_eq!(pauses, [false, false, true, false, true], "{:?}", speech.words);
    }

    #[test]
    fn a_written_amount_has_one_span_over_all_its_words() {
        let speech = Speech::of("It costs $13,100 today.");
        let amount = speech.tokens.iter().find(|t| t.text.starts_with("$13,100")).expect("the token is kept");
        assert!(amount.said.len() >= 4, "{amount:?} {:?}", speech.words);
        let times: Vec<Option<Span>> =
            (0..speech.words.len() as u64).map(|i| Some((i * 100, i * 100 + 90))).collect();
        let spans = speech.token_spans(&times);
        assert_eq!(spans.len(), 4);
        assert_eq!(spans[2], Some((200, (amount.said.end as u64 - 1) * 100 + 90)));
    }

    #[test]
    fn turns_without_a_word_say_nothing_and_keep_their_tokens() {
        for text in ["!!!!!!!!", "\u{2026}", " ", "", "\u{1f600}", "--", "\0"] {
            let speech = Speech::of(text);
            assert!(speech.words.is_empty(), "{text:?} -> {speech:?}");
            assert_eq!(speech.token_spans(&[]).len(), speech.tokens.len());
        }
    }

    #[test]
    fn what_engines_cannot_read_does_not_reach_them() {
        let long = "a".repeat(5000);
        let speech = Speech::of(&format!("caf\u{e9} don\u{2019}t {long} \u{4f60}\u{597d}"));
        assert_eq!(speech.words[0].word, "cafe");
        for say in &speech.words {
            assert!(say.word.len() <= MAX_WORD, "{}", say.word.len());
            assert!(say.word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'\''), "{say:?}");
        }
    }
}
