//! Which word of one list is which of another: script against what an engine or a recogniser reports.

/// Longest common subsequence of two word lists, ignoring case: pairs `(index in a, index in b)`, both ascending.
///
/// Needs `a.len() * b.len()` cells; a turn has a few hundred words at most.
#[must_use]
pub fn common_words(a: &[&str], b: &[&str]) -> Vec<(usize, usize)> {
    let same = |i: usize, j: usize| a[i].eq_ignore_ascii_case(b[j]);
    let width = b.len() + 1;
    let mut longest = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i * width + j] = if same(i, j) {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if same(i, j) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_added_words_do_not_shift_the_others() {
        let ours = ["one", "two", "three", "four"];
        assert_eq!(common_words(&ours, &["one", "TWO", "three", "four"]), [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert_eq!(common_words(&ours, &["one", "three", "x", "four"]), [(0, 0), (2, 1), (3, 3)]);
        assert!(common_words(&ours, &[]).is_empty());
    }
}
