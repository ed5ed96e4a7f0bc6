//! Many tests at once.

use super::count;

/// Holm's adjusted p values, in the order given.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let (mut adjusted, mut largest) = (vec![0.0; p.len()], 0.0_f64);
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p[index] * count(p.len() - rank)).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, close, numbers};

    #[test]
    fn holm_matches_the_golden_values_with_and_without_ties() {
        let golden = golden::json("multiplicity.json");
        for (p, want) in [
            (&golden["p"], &golden["results"]["holm"]["adjusted"]),
            (&golden["tied"]["p"], &golden["tied"]["holm"]),
        ] {
            for (got, want) in holm(&numbers(p)).into_iter().zip(want.as_array().expect("a list")) {
                close("holm", got, want, 1e-12);
            }
        }
    }
}
