//! Two evaluations against each other, dialogue by dialogue: numbers only.

use std::collections::BTreeMap;

use domain::evaluation::DialogueScore;
use serde::Serialize;

use crate::metrics::{Better, METRICS, MetricInfo};
use crate::stats::bootstrap::{self, Interval, RESAMPLES};
use crate::stats::effect::{CliffsDelta, cliffs_delta, hodges_lehmann, rank_biserial};
use crate::stats::wilcoxon::{SignedRank, ZeroMethod, signed_rank};
use crate::stats::{mean, median, multiplicity};

/// Significance of an adjusted p value.
pub const ALPHA: f64 = 0.05;
/// Confidence of the intervals.
pub const LEVEL: f64 = 0.95;
/// Pairs with a difference below which the exact test cannot reach [`ALPHA`].
pub const FEWEST_PAIRS: usize = 6;

/// What the numbers say about one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is better.
    Better,
    /// The candidate is worse.
    Worse,
    /// It differs, in a metric without a good direction.
    Different,
    /// Nothing can be said.
    NoEvidence,
    /// Too few pairs with a difference to say anything, whatever they show.
    InsufficientData,
}

/// One metric of both sides.
#[derive(Debug, Clone, Serialize)]
pub struct MetricComparison {
    /// Key.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Family for multiple testing.
    pub family: &'static str,
    /// Direction.
    pub better: Better,
    /// Pairs.
    pub n: usize,
    /// Pairs with a difference.
    pub n_eff: usize,
    /// Mean of the baseline.
    pub mean_a: f64,
    /// Mean of the candidate.
    pub mean_b: f64,
    /// Mean of the differences, candidate minus baseline.
    pub mean_diff: f64,
    /// Median of the differences.
    pub median_diff: f64,
    /// Hodges–Lehmann shift.
    pub hl_shift: f64,
    /// Interval of the mean difference; absent where there is none.
    pub ci: Option<Interval>,
    /// Why there is no interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci_missing: Option<&'static str>,
    /// The test.
    pub wilcoxon: SignedRank,
    /// p after Holm within the family.
    pub p_adjusted: f64,
    /// Effect size, unpaired.
    pub cliffs_delta: CliffsDelta,
    /// Effect size, paired.
    pub rank_biserial: f64,
    /// What it says.
    pub verdict: Verdict,
    /// The verdict in words.
    pub note: String,
    /// Both values by dialogue.
    pub pairs: Vec<Pair>,
}

/// Both values of one dialogue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Record id.
    pub dialogue: String,
    /// Baseline.
    pub a: f64,
    /// Candidate.
    pub b: f64,
}

/// All metrics, and the dialogues that only one side has.
#[derive(Debug, Clone, Serialize)]
pub struct PairedComparison {
    /// Dialogues of both sides.
    pub paired: Vec<String>,
    /// Dialogues of one side only.
    pub dropped: Vec<String>,
    /// The metrics in the order of the report.
    pub metrics: Vec<MetricComparison>,
}

/// Compares candidate `b` with baseline `a`; `seed` drives the resampling.
#[must_use]
pub fn compare(a: &[DialogueScore], b: &[DialogueScore], seed: u64) -> PairedComparison {
    let by_id = |scores: &[DialogueScore]| -> BTreeMap<String, BTreeMap<String, f64>> {
        scores.iter().map(|s| (s.dialogue.clone(), s.metrics.clone())).collect()
    };
    let (left, right) = (by_id(a), by_id(b));
    let paired: Vec<String> = left.keys().filter(|id| right.contains_key(*id)).cloned().collect();
    let one_sided = left.keys().filter(|id| !right.contains_key(*id));
    let dropped = one_sided.chain(right.keys().filter(|id| !left.contains_key(*id))).cloned().collect();
    let mut metrics: Vec<MetricComparison> = METRICS
        .iter()
        .filter_map(|info| {
            let pairs: Vec<Pair> = paired
                .iter()
                .filter_map(|id| {
                    let (a, b) = (left[id].get(info.name)?, right[id].get(info.name)?);
                    Some(Pair { dialogue: id.clone(), a: *a, b: *b })
                })
                .collect();
            one(info, pairs, seed)
        })
        .collect();
    adjust(&mut metrics);
    PairedComparison { paired, dropped, metrics }
}

fn one(info: &MetricInfo, pairs: Vec<Pair>, seed: u64) -> Option<MetricComparison> {
    let a: Vec<f64> = pairs.iter().map(|p| p.a).collect();
    let b: Vec<f64> = pairs.iter().map(|p| p.b).collect();
    let d: Vec<f64> = pairs.iter().map(|p| p.b - p.a).collect();
    let test = signed_rank(&d, ZeroMethod::Wilcox);
    // Resamples of a handful of values show no more spread than the values: no interval is better than that one.
    let interval = if d.len() < FEWEST_PAIRS {
        Err("too few pairs")
    } else {
        let resamples = bootstrap::indices(d.len(), RESAMPLES, seed);
        bootstrap::interval(&d, LEVEL, &resamples, |v| mean(v).unwrap_or(f64::NAN))
    };
    let (ci, ci_missing) = match interval {
        Ok(interval) => (Some(interval), None),
        Err(reason) => (None, Some(reason)),
    };
    Some(MetricComparison {
        name: info.name,
        title: info.title,
        unit: info.unit,
        family: info.family,
        better: info.better,
        n: pairs.len(),
        n_eff: test.n_eff,
        mean_a: mean(&a)?,
        mean_b: mean(&b)?,
        mean_diff: mean(&d)?,
        median_diff: median(&d)?,
        hl_shift: hodges_lehmann(&d)?,
        ci,
        ci_missing,
        p_adjusted: test.p,
        cliffs_delta: cliffs_delta(&a, &b)?,
        rank_biserial: rank_biserial(&test),
        wilcoxon: test,
        verdict: Verdict::NoEvidence,
        note: String::new(),
        pairs,
    })
}

/// Holm within each family, then the verdicts.
fn adjust(metrics: &mut [MetricComparison]) {
    let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, metric) in metrics.iter().enumerate() {
        families.entry(metric.family).or_default().push(index);
    }
    for members in families.values() {
        let raw: Vec<f64> = members.iter().map(|&i| metrics[i].wilcoxon.p).collect();
        for (&index, adjusted) in members.iter().zip(multiplicity::holm(&raw)) {
            metrics[index].p_adjusted = adjusted;
        }
    }
    for metric in metrics {
        (metric.verdict, metric.note) = judge(metric);
    }
}

fn judge(metric: &MetricComparison) -> (Verdict, String) {
    if metric.n_eff == 0 {
        return (Verdict::NoEvidence, "no dialogue differs".into());
    }
    if metric.n_eff < FEWEST_PAIRS {
        let note = format!(
            "cannot reach {ALPHA}: {} of {} dialogues differ, smallest possible p is {}",
            metric.n_eff, metric.n, metric.wilcoxon.p_min
        );
        return (Verdict::InsufficientData, note);
    }
    if metric.p_adjusted >= ALPHA {
        return (Verdict::NoEvidence, format!("adjusted p is {:.3}", metric.p_adjusted));
    }
    let up = metric.wilcoxon.w_plus > metric.wilcoxon.w_minus;
    let verdict = match (metric.better, up) {
        (Better::Neither, _) => Verdict::Different,
        (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
        (Better::Higher, false) | (Better::Lower, true) => Verdict::Worse,
    };
    (verdict, format!("adjusted p is {:.3}", metric.p_adjusted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(values: &[f64]) -> Vec<DialogueScore> {
        values
            .iter()
            .enumerate()
            .map(|(i, v)| DialogueScore {
                dialogue: format!("d{i}"),
                metrics: [("response_gap_s".to_owned(), *v), ("silence_share".to_owned(), 0.5)].into(),
            })
            .collect()
    }

    #[test]
    fn few_pairs_are_said_to_be_too_few() {
        let compared = compare(&scores(&[1.0, 2.0]), &scores(&[0.5, 1.0]), 0);
        let gap = compared.metrics.iter().find(|m| m.name == "response_gap_s").expect("compared");
        assert_eq!(gap.verdict, Verdict::InsufficientData);
        assert!(gap.note.contains("cannot reach 0.05"), "{}", gap.note);
        let silence = compared.metrics.iter().find(|m| m.name == "silence_share").expect("compared");
        assert_eq!((silence.verdict, silence.ci_missing), (Verdict::NoEvidence, Some("too few pairs")));
    }

    #[test]
    fn a_clear_shift_in_the_good_direction_is_better_and_in_the_other_worse() {
        let slow: Vec<f64> = (0..12).map(|i| 2.0 + 0.1 * f64::from(i)).collect();
        let fast: Vec<f64> = (0..12).map(|i| 1.0 + 0.07 * f64::from(i)).collect();
        let gap = |a: &[f64], b: &[f64]| {
            let compared = compare(&scores(a), &scores(b), 0);
            compared.metrics.into_iter().find(|m| m.name == "response_gap_s").expect("compared")
        };
        let better = gap(&slow, &fast);
        assert_eq!((better.verdict, better.cliffs_delta.label), (Verdict::Better, "large"));
        let ci = better.ci.expect("an interval");
        assert!(ci.lo < better.mean_diff && better.mean_diff < ci.hi && ci.hi < 0.0, "{ci:?}");
        assert_eq!(gap(&fast, &slow).verdict, Verdict::Worse);
    }

    #[test]
    fn dialogues_of_one_side_are_listed_and_left_out() {
        let compared = compare(&scores(&[1.0, 2.0, 3.0]), &scores(&[1.0, 2.0]), 0);
        assert_eq!((compared.paired.len(), compared.dropped), (2, vec!["d2".to_owned()]));
    }
}
