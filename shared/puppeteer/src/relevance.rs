//! Which facts have to do with what was said: BM25 over the words of facts and their tags.

use std::collections::HashMap;

use crate::knowledge::{Fact, KnowledgeBase};

/// Term saturation and length normalisation, the usual values (Robertson and Zaragoza 2009).
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// A tag counts as often as this many words of the text.
const TAG_WEIGHT: f64 = 2.0;

/// Words in lower case without possessive and plural endings; numbers count as words.
pub(crate) fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let word = |w: &str| {
        let w = w.trim_matches('\'');
        let w = w.strip_suffix("'s").unwrap_or(w);
        let plural = w.len() > 3 && !w.ends_with("ss") && w.chars().all(char::is_alphabetic);
        w.strip_suffix('s').filter(|_| plural).unwrap_or(w).to_owned()
    };
    lower.split(|c: char| !c.is_alphanumeric() && c != '\'').map(word).filter(|w| !w.is_empty()).collect()
}

/// Words that say nothing about a subject.
fn is_common(word: &str) -> bool {
    const COMMON: [&str; 61] = [
        "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can",
        "could", "did", "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "is",
        "it", "its", "me", "my", "no", "not", "of", "on", "or", "our", "please", "so", "that", "the",
        "there", "they", "this", "to", "was", "we", "were", "what", "when", "which", "who", "will", "with",
        "would", "yes", "you", "your", "okay",
    ];
    COMMON.contains(&word)
}

/// A fact and how well it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked<'a> {
    /// The fact.
    pub fact: &'a Fact,
    /// BM25 score, above 0.
    pub score: f64,
}

struct Entry {
    counts: HashMap<String, f64>,
    length: f64,
}

/// The words of a base, counted once.
pub struct Index {
    entries: Vec<Entry>,
    /// In how many facts a word occurs.
    holders: HashMap<String, f64>,
    mean_length: f64,
}

impl Index {
    /// Counts the words of every fact.
    #[must_use]
    pub fn new(base: &KnowledgeBase) -> Self {
        let entries: Vec<Entry> = base.facts().iter().map(entry).collect();
        let mut holders = HashMap::new();
        for word in entries.iter().flat_map(|entry| entry.counts.keys()) {
            *holders.entry(word.clone()).or_insert(0.0) += 1.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "facts are few")]
        let mean_length = entries.iter().map(|e| e.length).sum::<f64>() / entries.len().max(1) as f64;
        Self { entries, holders, mean_length: mean_length.max(1.0) }
    }

    /// The `most` best facts for what was said, best first; those without a common word are left out.
    #[must_use]
    pub fn rank<'a>(&self, base: &'a KnowledgeBase, said: &str, most: usize) -> Vec<Ranked<'a>> {
        let mut asked = words(said);
        asked.retain(|word| !is_common(word));
        asked.sort_unstable();
        asked.dedup();
        let scored = base.facts().iter().zip(&self.entries);
        let scored = scored.map(|(fact, entry)| Ranked { fact, score: self.score(entry, &asked) });
        let mut ranked: Vec<_> = scored.filter(|r| r.score > 0.0).collect();
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
        ranked.truncate(most);
        ranked
    }

    fn score(&self, entry: &Entry, asked: &[String]) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "facts are few")]
        let n = self.entries.len() as f64;
        let norm = K1 * (1.0 - B + B * entry.length / self.mean_length);
        let of = |word: &String| {
            let count = entry.counts.get(word)?;
            let holders = self.holders[word];
            let rarity = (1.0 + (n - holders + 0.5) / (holders + 0.5)).ln();
            Some(rarity * count * (K1 + 1.0) / (count + norm))
        };
        asked.iter().filter_map(of).sum()
    }
}

fn entry(fact: &Fact) -> Entry {
    let mut counts = HashMap::new();
    let mut add = |text: &str, weight: f64| {
        for word in words(text).into_iter().filter(|word| !is_common(word)) {
            *counts.entry(word).or_insert(0.0) += weight;
        }
    };
    add(&fact.text, 1.0);
    for tag in &fact.tags {
        add(tag, TAG_WEIGHT);
    }
    let length = counts.values().sum();
    Entry { counts, length }
}

/// Whether two texts say nearly the same: the shared part of their words.
pub(crate) fn overlap(a: &str, b: &str) -> f64 {
    let set = |text: &str| {
        words(text).into_iter().filter(|w| !is_common(w)).collect::<std::collections::HashSet<_>>()
    };
    let (a, b) = (set(a), set(b));
    if a.is_empty() && b.is_empty() {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "words of a sentence")]
    let share = a.intersection(&b).count() as f64 / a.union(&b).count() as f64;
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> KnowledgeBase {
        KnowledgeBase::from_markdown(
            "# Renewal\n- Policy 2266 renews on March 3 for $1,310.\n# Claims\n- Claim 88 was paid on Monday.\n- The adjuster's name is Dana.",
        )
        .expect("facts")
    }

    #[test]
    fn the_fact_that_shares_rare_words_with_what_was_said_comes_first() {
        let base = base();
        let index = Index::new(&base);
        let first = |said: &str| index.rank(&base, said, 3).first().map(|r| r.fact.id.clone());
        assert_eq!(first("so when does my policy 2266 renew").as_deref(), Some("fact-1"));
        assert_eq!(first("who is the adjuster on that").as_deref(), Some("fact-3"));
        assert_eq!(first("about the renewal").as_deref(), Some("fact-1"), "a heading counts");
        assert_eq!(first("and what is that for you"), None, "common words alone find nothing");
        assert_eq!(index.rank(&base, "claim 88 and policy 2266", 1).len(), 1);
    }

    #[test]
    fn texts_with_the_same_words_overlap_whatever_their_order() {
        assert!(overlap("Claim 88 was paid on Monday.", "On Monday, claim 88 was paid") > 0.99);
        assert!(overlap("Claim 88 was paid", "Policy 2266 renews") < 0.01);
    }
}
