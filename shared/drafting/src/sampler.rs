//! The sampling design: a categorical Latin hypercube over the eight axes of a pack (finetune.md 2.1).
//!
//! Every marginal is exact up to rounding, the pairs named in the pack are allocated together, and small axes are
//! shuffled until they hang together as little as 64 tries allow. A design follows from (pack, size, seed) alone, so that
//! any worker can compute any shard of it.

use std::collections::BTreeMap;

use domain::dialogue::DesignRow;
use domain::pack::{Axis, DomainPack};
use sha2::{Digest, Sha256};

use crate::allocate::{joint_counts, largest_remainder};
use crate::rng::Stream;

/// Shuffles tried for a small axis.
const TRIES: usize = 64;
/// Axes up to this many levels count as small.
const SMALL: usize = 14;

/// A design: for each row, one level of each axis.
#[derive(Debug, Clone)]
pub struct Design {
    id: String,
    /// By axis, then by row: index of the level.
    columns: Vec<Vec<usize>>,
    rows: usize,
}

impl Design {
    /// Computes the design of `rows` rows.
    #[must_use]
    pub fn new(pack: &DomainPack, rows: u32, seed: u64) -> Self {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut columns: Vec<Option<Vec<usize>>> = vec![None; pack.axes.len()];
        for pair in &pack.joint {
            if let [Some((a, _)), Some((b, _))] = [pack.axis(&pair[0]), pack.axis(&pair[1])] {
                let (first, second) = joint_columns(&pack.axes[a], &pack.axes[b], rows, seed);
                columns[a] = Some(first);
                columns[b] = Some(second);
            }
        }
        for (i, axis) in pack.axes.iter().enumerate().filter(|(_, axis)| axis.values.len() <= SMALL) {
            if columns[i].is_none() {
                let placed: Vec<(usize, &[usize])> = placed_small(pack, &columns);
                columns[i] = Some(best_column(axis, rows, seed, &placed));
            }
        }
        let columns = columns
            .into_iter()
            .zip(&pack.axes)
            .map(|(column, axis)| column.unwrap_or_else(|| shuffled_column(axis, rows, seed)))
            .collect();
        Self { id: design_id(pack, rows, seed), columns, rows }
    }

    /// Hash of pack id and version, axes, size and seed: 16 hex digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Level of each axis in a row; `None` past the end.
    #[must_use]
    pub fn levels(&self, row: u32) -> Option<Vec<usize>> {
        let row = usize::try_from(row).ok()?;
        self.columns.iter().map(|column| column.get(row).copied()).collect()
    }

    /// Axis name to value id of a row.
    #[must_use]
    pub fn values(&self, pack: &DomainPack, row: u32) -> Option<BTreeMap<String, String>> {
        let levels = self.levels(row)?;
        let name = |(axis, level): (&Axis, usize)| (axis.name.clone(), axis.values[level].id.clone());
        Some(pack.axes.iter().zip(levels).map(name).collect())
    }

    /// Where a row's record says it comes from.
    #[must_use]
    pub fn row(&self, row: u32) -> DesignRow {
        DesignRow { design_id: self.id.clone(), row }
    }

    /// Cramér's V of two axes by position.
    #[must_use]
    pub fn cramers_v(&self, pack: &DomainPack, a: usize, b: usize) -> f64 {
        let sizes = (pack.axes[a].values.len(), pack.axes[b].values.len());
        cramers_v(&self.columns[a], &self.columns[b], sizes)
    }
}

/// Levels in their exact numbers, in level order. Axes without weights have only ties, so the levels that get one row
/// more are drawn: otherwise a design smaller than the axis would always take its first levels.
fn strata(axis: &Axis, rows: usize, stream: &mut Stream) -> Vec<usize> {
    let mut order: Vec<usize> = (0..axis.values.len()).collect();
    if !axis.is_weighted() {
        stream.shuffle(&mut order);
    }
    let counts = largest_remainder(rows, &axis.weights(), &order);
    counts.into_iter().enumerate().flat_map(|(level, count)| std::iter::repeat_n(level, count)).collect()
}

fn shuffled_column(axis: &Axis, rows: usize, seed: u64) -> Vec<usize> {
    let mut stream = Stream::new(seed, &["design", &axis.name]);
    let mut column = strata(axis, rows, &mut stream);
    stream.shuffle(&mut column);
    column
}

fn best_column(axis: &Axis, rows: usize, seed: u64, placed: &[(usize, &[usize])]) -> Vec<usize> {
    let mut stream = Stream::new(seed, &["design", &axis.name]);
    let mut column = strata(axis, rows, &mut stream);
    let mut best: Option<(f64, Vec<usize>)> = None;
    let tries = if placed.is_empty() { 1 } else { TRIES };
    for _ in 0..tries {
        stream.shuffle(&mut column);
        let worst = placed
            .iter()
            .map(|(levels, other)| cramers_v(&column, other, (axis.values.len(), *levels)))
            .fold(0.0, f64::max);
        if best.as_ref().is_none_or(|(least, _)| worst < *least) {
            best = Some((worst, column.clone()));
        }
    }
    best.map_or(column, |(_, column)| column)
}

fn placed_small<'a>(pack: &DomainPack, columns: &'a [Option<Vec<usize>>]) -> Vec<(usize, &'a [usize])> {
    columns
        .iter()
        .zip(&pack.axes)
        .filter(|(_, axis)| axis.values.len() <= SMALL)
        .filter_map(|(column, axis)| column.as_deref().map(|c| (axis.values.len(), c)))
        .collect()
}

/// Both columns of a pair, shuffled as a unit; each marginal is exact by itself and every combination gets its share.
fn joint_columns(a: &Axis, b: &Axis, rows: usize, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut stream = Stream::new(seed, &["design", &a.name, &b.name]);
    let count = |axis: &Axis, stream: &mut Stream| {
        let mut counts = vec![0; axis.values.len()];
        for level in strata(axis, rows, stream) {
            counts[level] += 1;
        }
        counts
    };
    let (heights, widths) = (count(a, &mut stream), count(b, &mut stream));
    let expected: Vec<Vec<f64>> =
        a.weights().iter().map(|x| b.weights().iter().map(|y| x * y * rows as f64).collect()).collect();
    let table = joint_counts(&heights, &widths, &expected);
    let mut cells: Vec<(usize, usize)> = Vec::with_capacity(rows);
    for (i, row) in table.iter().enumerate() {
        for (j, count) in row.iter().enumerate() {
            cells.extend(std::iter::repeat_n((i, j), *count));
        }
    }
    stream.shuffle(&mut cells);
    cells.into_iter().unzip()
}

/// Cramér's V of two columns with the given numbers of levels; 0 when one of them is constant.
fn cramers_v(a: &[usize], b: &[usize], (height, width): (usize, usize)) -> f64 {
    let total = a.len() as f64;
    let mut table = vec![0.0; height * width];
    let (mut rows, mut columns) = (vec![0.0; height], vec![0.0; width]);
    for (i, j) in a.iter().zip(b) {
        table[i * width + j] += 1.0;
        rows[*i] += 1.0;
        columns[*j] += 1.0;
    }
    let mut chi2 = 0.0;
    for (cell, found) in table.iter().enumerate() {
        let expected = rows[cell / width] * columns[cell % width] / total;
        if expected > 0.0 {
            chi2 += (found - expected) * (found - expected) / expected;
        }
    }
    let used = |sums: &[f64]| sums.iter().filter(|s| **s > 0.0).count();
    let degrees = used(&rows).min(used(&columns)).saturating_sub(1);
    if degrees == 0 { 0.0 } else { (chi2 / (total * degrees as f64)).sqrt() }
}

fn design_id(pack: &DomainPack, rows: usize, seed: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("plexforge design 1\n{} {}\n{rows} {seed}\n", pack.id, pack.version));
    for axis in &pack.axes {
        for (value, weight) in axis.values.iter().zip(axis.weights()) {
            hash.update(format!("{}\t{}\t{weight:.9}\n", axis.name, value.id));
        }
    }
    for [a, b] in &pack.joint {
        hash.update(format!("{a}+{b}\n"));
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use domain::pack::{INJECTION_AXIS, OUTCOME_AXIS, built_in};
    use proptest::prelude::*;

    use super::*;

    fn counts(column: &[usize], levels: usize) -> Vec<usize> {
        let mut counts = vec![0; levels];
        for level in column {
            counts[*level] += 1;
        }
        counts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn marginals_are_exact_within_one_and_no_level_repeats_before_all_are_used(rows in 2u32..400, seed: u64) {
            for (_, pack) in built_in() {
                let design = Design::new(&pack, rows, seed);
                for (column, axis) in design.columns.iter().zip(&pack.axes) {
                    prop_assert_eq!(column.len(), usize::try_from(rows).unwrap_or_default());
                    let counts = counts(column, axis.values.len());
                    for (count, weight) in counts.iter().zip(axis.weights()) {
                        prop_assert!((*count as f64 - weight * f64::from(rows)).abs() < 1.0 + 1e-6, "{}", axis.name);
                    }
                    if !axis.is_weighted() {
                        let (least, most) = (counts.iter().min(), counts.iter().max());
                        prop_assert!(most.zip(least).is_some_and(|(m, l)| m - l <= 1), "{} {counts:?}", axis.name);
                    }
                }
            }
        }

        #[test]
        fn a_design_is_the_same_wherever_it_is_computed(rows in 2u32..60, seed: u64) {
            for (_, pack) in built_in() {
                let (here, there) = (Design::new(&pack, rows, seed), Design::new(&pack, rows, seed));
                prop_assert_eq!(&here.columns, &there.columns);
                prop_assert_eq!(here.id(), there.id());
                let other = Design::new(&pack, rows, seed.wrapping_add(1));
                prop_assert_ne!(here.id(), other.id());
            }
        }
    }

    #[test]
    fn pairs_hang_together_less_than_independent_columns_would() {
        for (_, pack) in built_in() {
            let design = Design::new(&pack, 500, 7);
            let at = |name| pack.axis(name).map(|(i, _)| i).expect("is checked");
            let joint = design.cramers_v(&pack, at(OUTCOME_AXIS), at(INJECTION_AXIS));
            assert!(joint < 0.02, "{} {joint}", pack.id);
            let small: Vec<usize> = (0..8).filter(|i| pack.axes[*i].values.len() <= SMALL).collect();
            for (n, a) in small.iter().enumerate() {
                for b in &small[n + 1..] {
                    let v = design.cramers_v(&pack, *a, *b);
                    assert!(v < 0.13, "{} {} {} {v}", pack.id, pack.axes[*a].name, pack.axes[*b].name);
                }
            }
        }
    }

    #[test]
    fn a_small_design_draws_other_levels_of_a_large_axis_with_another_seed() {
        let (_, pack) = built_in().swap_remove(0);
        let used = |seed| counts(&Design::new(&pack, 12, seed).columns[1], pack.axes[1].values.len());
        assert_ne!(used(1), used(2));
    }

    #[test]
    fn rows_past_the_end_do_not_exist() {
        let (_, pack) = built_in().swap_remove(0);
        let design = Design::new(&pack, 5, 0);
        assert!(design.values(&pack, 4).is_some());
        assert!(design.values(&pack, 5).is_none());
    }
}
