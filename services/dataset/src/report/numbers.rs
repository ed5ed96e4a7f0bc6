//! Distributions: a few quantiles and a histogram.

use serde::{Deserialize, Serialize};

/// How values are spread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// A tenth is below.
    pub p10: f64,
    /// Half is below.
    pub median: f64,
    /// Nine tenths are below.
    pub p90: f64,
    /// Largest.
    pub max: f64,
    /// Counts in bins of equal width.
    pub histogram: Histogram,
}

/// Counts in bins of equal width.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Left edge of the first bin.
    pub from: f64,
    /// Width of a bin.
    pub width: f64,
    /// Values in each.
    pub counts: Vec<u64>,
}

const BINS: usize = 24;

impl Spread {
    /// Of `values`, in any order; values that are not finite are left out.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Self::default() };
        Self {
            count: sorted.len() as u64,
            mean: rounded(sorted.iter().sum::<f64>() / sorted.len() as f64),
            min,
            p10: quantile(&sorted, 0.1),
            median: quantile(&sorted, 0.5),
            p90: quantile(&sorted, 0.9),
            max,
            histogram: Histogram::of(&sorted, min, max),
        }
    }
}

/// Linear between the two neighbours.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    rounded(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
}

/// Four decimals: enough for a reader, and the same on every machine.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

impl Histogram {
    fn of(values: &[f64], min: f64, max: f64) -> Self {
        // Counts get a bin each: half a turn is no value.
        let whole = values.iter().all(|v| v.fract() == 0.0);
        let width = nice_width((max - min) / BINS as f64).max(if whole { 1.0 } else { 0.0 });
        let from = (min / width).floor() * width;
        let bins = (((max - from) / width).floor() as usize + 1).min(4 * BINS);
        let mut counts = vec![0u64; bins];
        for value in values {
            let bin = (((value - from) / width).floor().max(0.0) as usize).min(bins - 1);
            counts[bin] += 1;
        }
        Self { from: rounded(from), width: rounded(width), counts }
    }
}

/// The next larger of 1, 2 and 5 times a power of ten.
fn nice_width(raw: f64) -> f64 {
    let raw = raw.max(1e-3);
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|width| *width >= raw).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_bins_of_known_values() {
        let spread = Spread::of((0..=100).map(f64::from).chain([f64::NAN]));
        assert_eq!((spread.count, spread.mean, spread.min, spread.max), (101, 50.0, 0.0, 100.0));
        assert_eq!((spread.p10, spread.median, spread.p90), (10.0, 50.0, 90.0));
        assert_eq!((spread.histogram.from, spread.histogram.width), (0.0, 5.0));
        assert_eq!(spread.histogram.counts.iter().sum::<u64>(), 101);
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([-2.5]).histogram.counts.iter().sum::<u64>(), 1);
    }
}
