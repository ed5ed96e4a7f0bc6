//! Wilcoxon's signed-rank test: exact over the sign flips of the observed mid-ranks, normal for many pairs.

use serde::Serialize;

use super::{count, normal_cdf};

/// Pairs up to which the exact distribution is counted out.
pub const EXACT_UP_TO: usize = 200;

/// What happens to pairs without a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZeroMethod {
    /// Left out before ranking.
    Wilcox,
    /// Ranked, then left out of the sums.
    Pratt,
}

/// How the p value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Every flip of signs counted.
    ExactPermutation,
    /// Normal approximation with continuity correction.
    Normal,
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SignedRank {
    /// How.
    pub method: Method,
    /// Zeros.
    pub zero_method: ZeroMethod,
    /// Pairs with a difference.
    pub n_eff: usize,
    /// Sum of the ranks of positive differences.
    pub w_plus: f64,
    /// Sum of the ranks of negative differences.
    pub w_minus: f64,
    /// Two-sided p value.
    pub p: f64,
    /// Smallest p that this many pairs can reach.
    pub p_min: f64,
}

/// Tests whether paired differences centre on zero.
#[must_use]
pub fn signed_rank(differences: &[f64], zero_method: ZeroMethod) -> SignedRank {
    let ranked = rank(differences, zero_method);
    let n_eff = ranked.ranks.len();
    let w_plus: f64 = ranked.positive();
    let w_minus = ranked.ranks.iter().map(|(rank, _)| rank).sum::<f64>() - w_plus;
    let (method, p) = if n_eff <= EXACT_UP_TO {
        (Method::ExactPermutation, exact_two_sided(&ranked))
    } else {
        (Method::Normal, normal_two_sided(&ranked, true))
    };
    let p_min = if n_eff == 0 { 1.0 } else { (0.5_f64).powf(count(n_eff) - 1.0) };
    SignedRank { method, zero_method, n_eff, w_plus, w_minus, p, p_min }
}

/// Ranks of the non-zero differences with their signs.
pub(crate) struct Ranked {
    ranks: Vec<(f64, bool)>,
    zeros_ranked: usize,
    /// Sizes of the groups of equal non-zero |d|.
    ties: Vec<usize>,
}

impl Ranked {
    fn positive(&self) -> f64 {
        self.ranks.iter().filter(|(_, positive)| *positive).map(|(rank, _)| rank).sum()
    }
}

pub(crate) fn rank(differences: &[f64], zero_method: ZeroMethod) -> Ranked {
    let mut by_size: Vec<f64> = differences.to_vec();
    if zero_method == ZeroMethod::Wilcox {
        by_size.retain(|d| *d != 0.0);
    }
    by_size.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (mut ranks, mut ties, mut zeros_ranked, mut start) = (Vec::new(), Vec::new(), 0, 0);
    while start < by_size.len() {
        let size = by_size[start].abs();
        let end = start + by_size[start..].iter().take_while(|d| d.abs() <= size).count();
        // Ranks start+1 ..= end share their mean.
        let rank = 0.5 * (count(start + 1) + count(end));
        if size == 0.0 {
            zeros_ranked = end - start;
        } else {
            ranks.extend(by_size[start..end].iter().map(|d| (rank, *d > 0.0)));
            ties.push(end - start);
        }
        start = end;
    }
    Ranked { ranks, zeros_ranked, ties }
}

/// `min(1, 2·min(P(W⁺ ≥ w), P(W⁺ ≤ w)))` over all flips of signs, each as likely. Mid-ranks doubled are whole numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "doubled ranks are small whole numbers"
)]
fn exact_two_sided(ranked: &Ranked) -> f64 {
    let doubled: Vec<usize> = ranked.ranks.iter().map(|(rank, _)| (rank * 2.0).round() as usize).collect();
    let total: usize = doubled.iter().sum();
    // Probabilities instead of counts: 2^200 would not fit, and halving is exact.
    let mut probability = vec![0.0; total + 1];
    probability[0] = 1.0;
    let mut reached = 0;
    for rank in doubled {
        reached += rank;
        for sum in (0..=reached).rev() {
            let flipped = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = 0.5 * (probability[sum] + flipped);
        }
    }
    let observed = (ranked.positive() * 2.0).round() as usize;
    let at_most: f64 = probability[..=observed].iter().sum();
    let at_least: f64 = probability[observed..].iter().sum();
    (2.0 * at_most.min(at_least)).min(1.0)
}

/// The asymptotic test; with pratt, the ranks taken by zeros are accounted for.
pub(crate) fn normal_two_sided(ranked: &Ranked, correct: bool) -> f64 {
    let z = count(ranked.zeros_ranked);
    let n = count(ranked.ranks.len()) + z;
    let mean = n * (n + 1.0) / 4.0 - z * (z + 1.0) / 4.0;
    let tied: f64 = ranked.ties.iter().map(|&t| count(t).powi(3) - count(t)).sum();
    let variance =
        n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - z * (z + 1.0) * (2.0 * z + 1.0) / 24.0 - tied / 48.0;
    if variance <= 0.0 {
        return 1.0;
    }
    let away = (ranked.positive() - mean).abs() - if correct { 0.5 } else { 0.0 };
    (2.0 * normal_cdf(-away.max(0.0) / variance.sqrt())).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, close};

    #[test]
    fn the_exact_test_matches_the_golden_permutation_values() {
        let rows = golden::json("signed_rank_permutation.json");
        for row in rows.as_array().expect("rows") {
            let d = golden::differences(row["data"].as_str().expect("a name"));
            let method = method(&row["zero_method"]).expect("wilcox or pratt");
            let got = signed_rank(&d, method);
            assert_eq!(got.n_eff as u64, row["n_eff"].as_u64().expect("a count"), "{row}");
            close("w_plus", got.w_plus, &row["w_plus"], 1e-9);
            close("w_minus", got.w_minus, &row["w_minus"], 1e-9);
            close("p", got.p, &row["p_two_sided"], 1e-12);
        }
    }

    #[test]
    fn the_normal_approximation_matches_the_golden_values() {
        let golden = golden::json("wilcoxon.json");
        let mut compared = 0;
        for row in golden["results"].as_array().expect("rows") {
            let Some(zero_method) = method(&row["zero_method"]) else { continue };
            if row["method"] == "exact" || row["alternative"] != "two-sided" || row["pvalue"].is_null() {
                continue;
            }
            let d = golden::differences(row["data"].as_str().expect("a name"));
            let p = normal_two_sided(&rank(&d, zero_method), row["correction"] == true);
            close(&row.to_string(), p, &row["pvalue"], 1e-9);
            compared += 1;
        }
        assert!(compared >= 32, "{compared} rows compared");
    }

    #[test]
    fn five_pairs_cannot_reach_the_usual_threshold_and_none_says_nothing() {
        let five = signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0], ZeroMethod::Wilcox);
        assert!((five.p - 0.0625).abs() < 1e-15 && (five.p_min - five.p).abs() < 1e-15);
        let none = signed_rank(&[0.0, 0.0], ZeroMethod::Wilcox);
        assert!((none.p - 1.0).abs() < 1e-15 && none.n_eff == 0);
    }

    fn method(value: &serde_json::Value) -> Option<ZeroMethod> {
        match value.as_str() {
            Some("wilcox") => Some(ZeroMethod::Wilcox),
            Some("pratt") => Some(ZeroMethod::Pratt),
            _ => None,
        }
    }
}
