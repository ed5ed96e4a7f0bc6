//! Random choices that do not depend on the version of a library: ChaCha8 streams with a documented seed, and our own
//! bounded numbers and shuffles on top.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// One stream of random numbers, fixed by a seed and the labels that say what it is for.
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream whose 32 byte key is SHA-256 of the seed (little endian) and the labels, each with its length before it.
    #[must_use]
    pub fn new(seed: u64, labels: &[&str]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"plexforge stream 1");
        hash.update(seed.to_le_bytes());
        for label in labels {
            hash.update(u64::try_from(label.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(label.as_bytes());
        }
        Self(ChaCha8Rng::from_seed(hash.finalize().into()))
    }

    /// A whole number below `bound`, each equally likely; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Values at or above the largest multiple of the bound would favour small results.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let value = self.0.next_u64();
            if value < limit {
                return value % bound;
            }
        }
    }

    /// An index of a list of `length` elements.
    pub fn index(&mut self, length: usize) -> usize {
        let bound = u64::try_from(length).expect("a length fits 64 bits");
        usize::try_from(self.below(bound)).expect("is below a length")
    }

    /// A number in `[0, 1)` with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fisher-Yates from the end.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_with_other_labels_or_seeds_differ_and_equal_ones_agree() {
        let draw = |seed, labels: &[&str]| Stream::new(seed, labels).below(u64::MAX);
        assert_eq!(draw(1, &["a", "b"]), draw(1, &["a", "b"]));
        assert_ne!(draw(1, &["a", "b"]), draw(1, &["ab"]));
        assert_ne!(draw(1, &["a"]), draw(2, &["a"]));
    }

    #[test]
    fn bounded_numbers_cover_their_range_evenly() {
        let mut stream = Stream::new(5, &["dice"]);
        let mut counts = [0u32; 6];
        for _ in 0..6_000 {
            counts[stream.index(6)] += 1;
        }
        assert!(counts.iter().all(|c| (880..1_120).contains(c)), "{counts:?}");
    }
}
