//! How large a difference is.

use serde::Serialize;

use super::{count, median, wilcoxon};

/// Cliff's delta with its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CliffsDelta {
    /// `(#{b > a} − #{b < a}) / (n_a n_b)`, −1 to 1.
    pub delta: f64,
    /// `negligible`, `small`, `medium` or `large` (0.147, 0.33, 0.474).
    pub label: &'static str,
}

/// Cliff's delta of `b` against `a`; it ignores the pairing. `None` when a side is empty.
#[must_use]
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<CliffsDelta> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (mut greater, mut less) = (0usize, 0usize);
    for x in a {
        greater += b.iter().filter(|y| *y > x).count();
        less += b.iter().filter(|y| *y < x).count();
    }
    let delta = (count(greater) - count(less)) / (count(a.len()) * count(b.len()));
    let label = match delta.abs() {
        d if d < 0.147 => "negligible",
        d if d < 0.33 => "small",
        d if d < 0.474 => "medium",
        _ => "large",
    };
    Some(CliffsDelta { delta, label })
}

/// Matched-pairs rank biserial correlation `(W⁺ − W⁻)/(W⁺ + W⁻)`; 0 without differences.
#[must_use]
pub fn rank_biserial(test: &wilcoxon::SignedRank) -> f64 {
    let sum = test.w_plus + test.w_minus;
    if sum > 0.0 { (test.w_plus - test.w_minus) / sum } else { 0.0 }
}

/// Hodges–Lehmann shift: the median of the means of all pairs of differences, each with itself too.
#[must_use]
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    let walsh: Vec<f64> = differences
        .iter()
        .enumerate()
        .flat_map(|(i, x)| differences[i..].iter().map(move |y| 0.5 * (x + y)))
        .collect();
    median(&walsh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, close};
    use crate::stats::mean;
    use crate::stats::wilcoxon::{ZeroMethod, signed_rank};

    #[test]
    fn effect_sizes_match_the_golden_values() {
        let rows = golden::json("effect_sizes.json");
        for row in rows.as_array().expect("rows") {
            let name = row["data"].as_str().expect("a name");
            let (a, b) = golden::pair(name);
            let d = golden::differences(name);
            let cliff = cliffs_delta(&a, &b).expect("both sides");
            close(name, cliff.delta, &row["cliffs_delta"], 1e-12);
            assert_eq!(cliff.label, row["magnitude"].as_str().expect("a label"), "{name}");
            if !row["matched_rank_biserial"].is_null() {
                let test = signed_rank(&d, ZeroMethod::Wilcox);
                close(name, rank_biserial(&test), &row["matched_rank_biserial"], 1e-12);
            }
            close(name, hodges_lehmann(&d).expect("pairs"), &row["hodges_lehmann"], 1e-12);
            close(name, mean(&d).expect("pairs"), &row["mean_diff"], 1e-12);
            close(name, median(&d).expect("pairs"), &row["median_diff"], 1e-12);
        }
    }
}
