use std::collections::HashSet;

/// Words of the shortest passage that counts as one.
pub(super) const PASSAGE: usize = 4;

/// Words as they are compared: without case and without punctuation around them.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Different pairs of neighbouring words, and all of them: their ratio is distinct-2 (Li et al. 2016).
pub(super) fn pairs(words: &[String]) -> (usize, usize) {
    let distinct: HashSet<&[String]> = words.windows(2).collect();
    (distinct.len(), words.len().saturating_sub(1))
}

/// Words that belong to a passage of at least [`PASSAGE`] words that was said before, at whatever distance; the two may
/// overlap, and the first saying does not count. So a word at place i counts when four words in a row that include it
/// are the same as four that begin earlier.
pub(super) fn repeated_words(words: &[String]) -> usize {
    let mut seen: HashSet<&[String]> = HashSet::new();
    let mut repeated = vec![false; words.len()];
    for (i, passage) in words.windows(PASSAGE).enumerate() {
        if !seen.insert(passage) {
            repeated[i..i + PASSAGE].fill(true);
        }
    }
    repeated.iter().filter(|r| **r).count()
}

/// Words of the longest passage that occurs twice; the two may overlap, as in a loop.
pub(super) fn longest_repeat(words: &[String]) -> usize {
    let occurs_twice = |n: usize| {
        let mut seen: HashSet<&[String]> = HashSet::new();
        words.windows(n).any(|passage| !seen.insert(passage))
    };
    // If n words occur twice, n - 1 do.
    let (mut low, mut high) = (0, words.len());
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if occurs_twice(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn words_are_compared_without_case_and_punctuation() {
        assert_eq!(words(" Yes. -- Don't,  YES! \"24/7\" ..."), ["yes", "don't", "yes", "24/7"]);
        assert!(words(" ... -- ").is_empty());
    }

    #[test]
    fn a_passage_that_comes_again_is_found_and_ordinary_speech_is_not() {
        let plain = words("Good morning, this is Anna from the pharmacy. How are you today?");
        assert_eq!((repeated_words(&plain), longest_repeat(&plain)), (0, 0));
        assert_eq!(pairs(&plain), (11, 11));
        let again = words("We can do that for you today, and then: we can do that for you tomorrow.");
        assert_eq!((repeated_words(&again), longest_repeat(&again)), (6, 6));
        let short = words("thank you anna thank you bob thank you carl");
        assert_eq!((repeated_words(&short), longest_repeat(&short)), (0, 2), "too short for a passage");
    }

    #[test]
    fn a_loop_is_nearly_all_repetition() {
        let looped = words(&"thank you very much ".repeat(10));
        assert_eq!(repeated_words(&looped), 36, "all but the first saying");
        assert_eq!(longest_repeat(&looped), 36);
        assert_eq!(pairs(&looped), (4, 39));
        let stuck = words(&"no ".repeat(10));
        assert_eq!((repeated_words(&stuck), longest_repeat(&stuck), pairs(&stuck)), (9, 9, (1, 9)));
        assert_eq!((longest_repeat(&[]), repeated_words(&[]), pairs(&[])), (0, 0, (0, 0)));
    }

    #[test]
    fn counts_agree_with_those_of_comparing_every_place_with_every_earlier_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for round in 0..200 {
            let n = rng.random_range(0..30);
            let said: Vec<String> = (0..n).map(|_| rng.random_range(0..3).to_string()).collect();
            let common =
                |i: usize, j: usize| said[i..].iter().zip(&said[j..]).take_while(|(a, b)| a == b).count();
            let of = |i: usize| (0..i).map(|j| common(i, j)).max().unwrap_or(0);
            let mut repeated = vec![false; n];
            for i in (0..n).filter(|i| of(*i) >= PASSAGE) {
                repeated[i..i + of(i)].fill(true);
            }
            let slow = (repeated.iter().filter(|r| **r).count(), (0..n).map(of).max().unwrap_or(0));
            assert_eq!((repeated_words(&said), longest_repeat(&said)), slow, "round {round}: {said:?}");
        }
    }
}
