//! Bootstrap intervals: percentile and BCa, on resamples of whole dialogues.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{count, normal_cdf, normal_quantile, quantile, sorted};

/// Resamples of an interval.
pub const RESAMPLES: usize = 9_999;

/// A confidence interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// `bca`, or `percentile` where the acceleration is not defined.
    pub method: &'static str,
    /// Confidence, e.g. 0.95.
    pub level: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// Resample indices of `n` values, from a seed.
#[must_use]
pub fn indices(n: usize, resamples: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..resamples).map(|_| (0..n).map(|_| rng.random_range(0..n)).collect()).collect()
}

/// The statistic on every resample, sorted.
fn distribution(values: &[f64], indices: &[Vec<usize>], statistic: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let resampled = indices.iter().map(|picked| {
        let sample: Vec<f64> = picked.iter().map(|&i| values[i]).collect();
        statistic(&sample)
    });
    sorted(&resampled.collect::<Vec<f64>>())
}

/// Percentile interval of a sorted distribution.
#[must_use]
pub fn percentile(distribution: &[f64], level: f64) -> (f64, f64) {
    let tail = (1.0 - level) / 2.0;
    (quantile(distribution, tail), quantile(distribution, 1.0 - tail))
}

/// Bias-corrected and accelerated interval; `None` where it is not defined (no spread, or θ outside the distribution).
fn bca(
    values: &[f64],
    distribution: &[f64],
    level: f64,
    statistic: impl Fn(&[f64]) -> f64,
) -> Option<(f64, f64)> {
    let theta = statistic(values);
    let below = distribution.iter().filter(|v| **v < theta).count();
    let at_most = distribution.iter().filter(|v| **v <= theta).count();
    let z0 = normal_quantile(count(below + at_most) / (2.0 * count(distribution.len())));
    let jackknife: Vec<f64> = (0..values.len())
        .map(|left_out| {
            let rest: Vec<f64> =
                values.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, v)| *v).collect();
            statistic(&rest)
        })
        .collect();
    let centre = jackknife.iter().sum::<f64>() / count(jackknife.len());
    let (squares, cubes) = jackknife.iter().fold((0.0, 0.0), |(s, c), v| {
        let d = centre - v;
        (s + d * d, c + d * d * d)
    });
    if squares <= 0.0 || !z0.is_finite() {
        return None;
    }
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    let end = |alpha: f64| {
        let z = z0 + normal_quantile(alpha);
        quantile(distribution, normal_cdf(z0 + z / (1.0 - acceleration * z)))
    };
    let tail = (1.0 - level) / 2.0;
    Some((end(tail), end(1.0 - tail)))
}

/// Interval of a statistic of paired differences; `Err` holds the reason where there is none.
///
/// # Errors
/// When there are fewer than two values, or all are equal.
pub fn interval(
    values: &[f64],
    level: f64,
    indices: &[Vec<usize>],
    statistic: impl Fn(&[f64]) -> f64,
) -> Result<Interval, &'static str> {
    if values.len() < 2 {
        return Err("fewer than two pairs");
    }
    if values.iter().all(|v| (v - values[0]).abs() <= 0.0) {
        return Err("all differences are equal");
    }
    let distribution = distribution(values, indices, &statistic);
    let (method, (lo, hi)) = match bca(values, &distribution, level, &statistic) {
        Some(ends) => ("bca", ends),
        None => ("percentile", percentile(&distribution, level)),
    };
    Ok(Interval { method, level, lo, hi })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{self, close};
    use crate::stats::{mean, median};

    #[test]
    fn intervals_match_the_golden_values_on_the_golden_resamples() {
        let golden = golden::json("bootstrap.json");
        for (key, want) in golden["results"].as_object().expect("results") {
            let parts: Vec<&str> = key.split('|').collect();
            let [name, which, level] = parts[..] else { panic!("{key}") };
            let d = golden::differences(name);
            let picked: Vec<Vec<usize>> =
                serde_json::from_value(golden["indices"][name].clone()).expect("indices");
            let level: f64 = level.parse().expect("a level");
            let statistic = |v: &[f64]| if which == "mean" { mean(v) } else { median(v) }.unwrap_or(f64::NAN);
            let distribution = distribution(&d, &picked, statistic);
            let (lo, hi) = percentile(&distribution, level);
            close(key, lo, &want["percentile"][0], 1e-9);
            close(key, hi, &want["percentile"][1], 1e-9);
            let interval = interval(&d, level, &picked, statistic).expect("an interval");
            assert_eq!(interval.method, "bca", "{key}");
            close(key, interval.lo, &want["bca"][0], 1e-7);
            close(key, interval.hi, &want["bca"][1], 1e-7);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_no_spread_gives_a_reason() {
        let d = [0.1, 0.4, -0.2, 0.3, 0.2, 0.6];
        let of = |seed| interval(&d, 0.95, &indices(6, 500, seed), |v| mean(v).unwrap_or(f64::NAN));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let flat = interval(&[0.5; 6], 0.95, &indices(6, 10, 0), |v| mean(v).unwrap_or(f64::NAN));
        assert_eq!(flat, Err("all differences are equal"));
    }
}
