//! How words are pronounced: the model's dictionary, word formation, letter names and learned spelling rules.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use crate::error::AlignerError;
use crate::phones::{Phone, Phones};
use crate::spelling::SpellingRules;

/// Phones of a word.
pub type Pronunciation = Vec<Phone>;

/// Letters of a word that are looked at; nothing that is longer is a word.
pub(crate) const MAX_LETTERS: usize = 64;
/// Pronunciations of one word.
const MAX_VARIANTS: usize = 6;
/// Longest word without a vowel that is taken for initials.
const MAX_INITIALS: usize = 5;

/// Names of the letters a to z.
const LETTER_NAMES: [&str; 26] = [
    "EY",
    "B IY",
    "S IY",
    "D IY",
    "IY",
    "EH F",
    "JH IY",
    "EY CH",
    "AY",
    "JH EY",
    "K EY",
    "EH L",
    "EH M",
    "EH N",
    "OW",
    "P IY",
    "K Y UW",
    "AA R",
    "EH S",
    "T IY",
    "Y UW",
    "V IY",
    "D AH B AH L Y UW",
    "EH K S",
    "W AY",
    "Z IY",
];

/// Where a pronunciation comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The dictionary.
    Dictionary,
    /// Parts that the dictionary has: two words, or a word and an ending.
    Parts,
    /// Letter by letter, or rules learned from the dictionary.
    Spelling,
    /// Nothing to pronounce.
    Nothing,
}

/// Pronounces words.
#[derive(Debug)]
pub struct Lexicon {
    entries: HashMap<Box<str>, Vec<Pronunciation>>,
    letters: Vec<Pronunciation>,
    endings: Endings,
    rules: OnceLock<SpellingRules>,
    phones: usize,
}

#[derive(Debug)]
struct Endings {
    s: Phone,
    z: Phone,
    extra: [Phone; 2],
    hissing: Vec<Phone>,
    voiceless: Vec<Phone>,
}

impl Lexicon {
    /// Reads a dictionary: a word and its phones on every line, `word(2)` for the second pronunciation.
    ///
    /// # Errors
    /// When the file is missing or names a phone that the model lacks.
    pub fn open(path: &Path, phones: &Phones) -> Result<Self, AlignerError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AlignerError::Read { path: path.to_owned(), source })?;
        let wrong = |reason: String| AlignerError::Format { path: path.to_owned(), reason };
        let names: HashMap<&str, Phone> = (0..).zip(phones.names()).map(|(i, n)| (n.as_str(), i)).collect();
        let read = |said: &str| -> Result<Pronunciation, AlignerError> {
            said.split_whitespace()
                .map(|name| names.get(name).copied().ok_or_else(|| wrong(format!("unknown phone {name:?}"))))
                .collect()
        };
        let mut entries: HashMap<Box<str>, Vec<Pronunciation>> = HashMap::with_capacity(1 << 17);
        for line in text.lines() {
            let Some((word, said)) = line.split_once(char::is_whitespace) else { continue };
            let word = word.split_once('(').map_or(word, |(word, _)| word);
            let said = read(said)?;
            if !said.is_empty() && !word.is_empty() {
                entries.entry(word.into()).or_default().push(said);
            }
        }
        if entries.is_empty() {
            return Err(wrong("it has no entry".into()));
        }
        let letters = LETTER_NAMES.iter().map(|said| read(said)).collect::<Result<_, _>>()?;
        let all = |list: &str| read(list);
        let endings = Endings {
            s: all("S")?[0],
            z: all("Z")?[0],
            extra: [all("AH")?[0], all("Z")?[0]],
            hissing: all("S Z SH ZH CH JH")?,
            voiceless: all("P T K F TH")?,
        };
        Ok(Self { entries, letters, endings, rules: OnceLock::new(), phones: phones.names().len() })
    }

    /// Words of the dictionary.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none; never so for a dictionary that was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Pronunciations of a word in any spelling, best first, each with at least one phone. Empty when no Latin letter
    /// is in it.
    #[must_use]
    pub fn pronounce(&self, word: &str) -> (Vec<Pronunciation>, Source) {
        let word = plain(word);
        let (mut said, source) = if let Some(known) = self.entries.get(word.as_str()) {
            (known.clone(), Source::Dictionary)
        } else if word.is_empty() {
            (Vec::new(), Source::Nothing)
        } else {
            self.formed(&word)
        };
        if let [letter @ b'a'..=b'z'] = word.as_bytes() {
            said.push(self.letters[usize::from(letter - b'a')].clone());
        }
        let mut distinct: Vec<Pronunciation> = Vec::with_capacity(said.len());
        for one in said {
            if !distinct.contains(&one) && distinct.len() < MAX_VARIANTS {
                distinct.push(one);
            }
        }
        (distinct, source)
    }

    /// Pronunciations by the learned rules alone; for measuring them.
    #[must_use]
    pub fn spell_out(&self, word: &str) -> Vec<Pronunciation> {
        self.rules().pronounce(&plain(word))
    }

    fn rules(&self) -> &SpellingRules {
        self.rules.get_or_init(|| {
            let pairs = self
                .entries
                .iter()
                .flat_map(|(word, said)| said.iter().map(move |s| (&**word, s.as_slice())));
            SpellingRules::learn(pairs, self.phones)
        })
    }

    fn formed(&self, word: &str) -> (Vec<Pronunciation>, Source) {
        if let Some(stem) = word.strip_suffix("'s").or_else(|| word.strip_suffix('s')).filter(|s| s.len() > 2)
            && let Some(known) = self.entries.get(stem)
        {
            return (known.iter().map(|said| self.with_ending(said)).collect(), Source::Parts);
        }
        let letters: String = word.chars().filter(|c| *c != '\'').collect();
        if letters.len() < word.len() && !letters.is_empty() {
            let stem = word.strip_suffix("'s").filter(|s| !s.is_empty());
            return match stem {
                Some(stem) => {
                    let (said, source) = self.pronounce(stem);
                    (said.iter().map(|said| self.with_ending(said)).collect(), source)
                }
                None => self.pronounce(&letters),
            };
        }
        let mut said = self.spelled(&letters);
        match self.compound(&letters) {
            Some(joined) => {
                said.insert(0, joined);
                (said, Source::Parts)
            }
            None => (said, Source::Spelling),
        }
    }

    fn with_ending(&self, said: &[Phone]) -> Pronunciation {
        let Endings { s, z, extra, hissing, voiceless } = &self.endings;
        let mut said = said.to_vec();
        match said.last() {
            Some(last) if hissing.contains(last) => said.extend(extra),
            Some(last) if voiceless.contains(last) => said.push(*s),
            _ => said.push(*z),
        }
        said
    }

    /// Two words of at least three letters; of several splits the most even one.
    fn compound(&self, letters: &str) -> Option<Pronunciation> {
        let mut cuts: Vec<usize> = (3..letters.len().saturating_sub(2)).collect();
        cuts.sort_by_key(|cut| cut.abs_diff(letters.len() - cut));
        cuts.into_iter().find_map(|cut| {
            let (head, tail) =
                (self.entries.get(letters.get(..cut)?)?, self.entries.get(letters.get(cut..)?)?);
            Some([head.first()?.as_slice(), tail.first()?].concat())
        })
    }

    fn spelled(&self, letters: &str) -> Vec<Pronunciation> {
        let name = |b: u8| b.is_ascii_lowercase().then(|| self.letters[usize::from(b - b'a')].as_slice());
        let initials = || -> Pronunciation { letters.bytes().filter_map(name).flatten().copied().collect() };
        let no_vowel = !letters.contains(['a', 'e', 'i', 'o', 'u', 'y']);
        if letters.len() == 1 || (no_vowel && letters.len() <= MAX_INITIALS) {
            return vec![initials()];
        }
        let mut said = self.rules().pronounce(letters);
        if said.is_empty() {
            said.push(initials());
        }
        said.retain(|one| !one.is_empty());
        said
    }
}

/// Lower-case Latin letters without accents, and apostrophes inside.
pub(crate) fn plain(word: &str) -> String {
    let folded = word.chars().flat_map(char::to_lowercase).flat_map(|c| fold(c).chars().chain(own(c)));
    let kept: String = folded.filter(|c| c.is_ascii_lowercase() || *c == '\'').take(MAX_LETTERS).collect();
    let inner = kept.trim_end_matches('\'');
    // 'em and 'til stand in the dictionary with their apostrophe.
    if inner.starts_with("''") { inner.trim_start_matches('\'').to_owned() } else { inner.to_owned() }
}

fn own(c: char) -> Option<char> {
    match c {
        '\u{2019}' | '\u{2018}' => Some('\''),
        c => fold(c).is_empty().then_some(c),
    }
}

/// An accented letter in plain ones; empty for every other character.
const fn fold(c: char) -> &'static str {
    match c {
        '\u{e0}'..='\u{e5}' | '\u{101}' | '\u{103}' | '\u{105}' => "a",
        '\u{e6}' => "ae",
        '\u{e7}' | '\u{107}' | '\u{10d}' => "c",
        '\u{10f}' | '\u{111}' | '\u{f0}' => "d",
        '\u{e8}'..='\u{eb}' | '\u{113}' | '\u{117}' | '\u{119}' | '\u{11b}' => "e",
        '\u{11f}' => "g",
        '\u{ec}'..='\u{ef}' | '\u{12b}' | '\u{131}' => "i",
        '\u{142}' => "l",
        '\u{f1}' | '\u{144}' | '\u{148}' => "n",
        '\u{f2}'..='\u{f6}' | '\u{f8}' | '\u{14d}' | '\u{151}' => "o",
        '\u{153}' => "oe",
        '\u{159}' => "r",
        '\u{15b}' | '\u{15f}' | '\u{161}' => "s",
        '\u{df}' => "ss",
        '\u{163}' | '\u{165}' => "t",
        '\u{fe}' => "th",
        '\u{f9}'..='\u{fc}' | '\u{16b}' | '\u{16f}' | '\u{171}' => "u",
        '\u{fd}' | '\u{ff}' => "y",
        '\u{17a}' | '\u{17c}' | '\u{17e}' => "z",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_folded_to_plain_letters() {
        assert_eq!(plain("Caf\u{e9}"), "cafe");
        assert_eq!(plain("O\u{2019}Brien\u{2019}"), "o'brien");
        assert_eq!(plain("'em"), "'em");
        assert_eq!(plain("''quoted''"), "quoted");
        assert_eq!(plain("\u{4f60}\u{597d}\u{1f600}!7"), "");
        assert_eq!(plain(&"w".repeat(5000)).len(), MAX_LETTERS);
    }
}
