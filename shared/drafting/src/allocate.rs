//! Whole numbers of rows for fractional shares: largest remainder for one axis, controlled rounding for a pair.

/// Largest remainder (Hamilton): counts that sum to `total`, each within 1 of `total * weight`. Ties go to the level
/// that comes first in `order`.
#[must_use]
pub fn largest_remainder(total: usize, weights: &[f64], order: &[usize]) -> Vec<usize> {
    let shares: Vec<f64> = weights.iter().map(|w| w * total as f64).collect();
    // The tolerance keeps 0.1 * 30 from becoming 2 and a remainder.
    let mut counts: Vec<usize> = shares.iter().map(|s| (s + 1e-9).floor() as usize).collect();
    let mut by_fraction: Vec<usize> = order.to_vec();
    let fraction = |i: usize| shares[i] - (shares[i] + 1e-9).floor();
    by_fraction.sort_by(|a, b| {
        let difference = fraction(*b) - fraction(*a);
        if difference.abs() < 1e-9 { std::cmp::Ordering::Equal } else { difference.total_cmp(&0.0) }
    });
    let missing = total.saturating_sub(counts.iter().sum());
    for level in by_fraction.into_iter().cycle().take(missing) {
        counts[level] += 1;
    }
    counts
}

/// A table of counts with exactly these row and column sums, as close to `rows * columns / total` as whole numbers get
/// (least sum of squares). Both margins must have the same sum.
#[must_use]
pub fn joint_counts(rows: &[usize], columns: &[usize], expected: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let mut table: Vec<Vec<usize>> = expected
        .iter()
        .map(|row| row.iter().map(|e| (e + 1e-9).floor().max(0.0) as usize).collect())
        .collect();
    loop {
        let lacking_row = |t: &Vec<Vec<usize>>, i: usize| rows[i] > t[i].iter().sum::<usize>();
        let lacking_column =
            |t: &Vec<Vec<usize>>, j: usize| columns[j] > t.iter().map(|r| r[j]).sum::<usize>();
        let starts: Vec<usize> = (0..rows.len()).filter(|i| lacking_row(&table, *i)).collect();
        if starts.is_empty() {
            return table;
        }
        let distances = shortest(&table, expected, &starts);
        let Some(end) = (0..columns.len())
            .filter(|j| lacking_column(&table, *j))
            .min_by(|a, b| distances.column[*a].0.total_cmp(&distances.column[*b].0))
        else {
            return table;
        };
        augment(&mut table, &distances, end);
    }
}

/// Cost and predecessor of every node of the flow network.
struct Distances {
    row: Vec<(f64, Option<usize>)>,
    column: Vec<(f64, Option<usize>)>,
}

/// Bellman-Ford from the rows that lack a unit: adding a unit to a cell leads from its row to its column, taking one
/// away leads back.
fn shortest(table: &[Vec<usize>], expected: &[Vec<f64>], starts: &[usize]) -> Distances {
    let (height, width) = (table.len(), table.first().map_or(0, Vec::len));
    let mut d =
        Distances { row: vec![(f64::INFINITY, None); height], column: vec![(f64::INFINITY, None); width] };
    for start in starts {
        d.row[*start].0 = 0.0;
    }
    for _ in 0..=(height + width) {
        let mut changed = false;
        for (i, cells) in table.iter().enumerate() {
            for (j, cell) in cells.iter().enumerate() {
                let surplus = *cell as f64 - expected[i][j];
                let (add, remove) = (2.0 * surplus + 1.0, 1.0 - 2.0 * surplus);
                if d.row[i].0 + add < d.column[j].0 - 1e-12 {
                    d.column[j] = (d.row[i].0 + add, Some(i));
                    changed = true;
                }
                if *cell > 0 && d.column[j].0 + remove < d.row[i].0 - 1e-12 {
                    d.row[i] = (d.column[j].0 + remove, Some(j));
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    d
}

fn augment(table: &mut [Vec<usize>], distances: &Distances, end: usize) {
    let mut column = end;
    while let Some(row) = distances.column[column].1 {
        table[row][column] += 1;
        let Some(back) = distances.row[row].1 else { return };
        table[row][back] -= 1;
        column = back;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn natural(length: usize) -> Vec<usize> {
        (0..length).collect()
    }

    #[test]
    fn the_largest_fractions_get_the_rest_and_ties_go_by_order() {
        assert_eq!(largest_remainder(12, &[0.25, 0.5, 0.15, 0.1], &natural(4)), [3, 6, 2, 1]);
        assert_eq!(largest_remainder(2, &[0.25; 4], &natural(4)), [1, 1, 0, 0]);
        assert_eq!(largest_remainder(2, &[0.25; 4], &[3, 1, 0, 2]), [0, 1, 0, 1]);
        assert_eq!(largest_remainder(30, &[0.1; 10], &natural(10)), [3; 10]);
    }

    #[test]
    fn a_table_keeps_both_margins_and_stays_near_its_shares() {
        let (rows, columns) = ([4, 3, 3, 1, 1], [3, 6, 2, 1]);
        let expected: Vec<Vec<f64>> =
            rows.iter().map(|r| columns.iter().map(|c| (r * c) as f64 / 12.0).collect()).collect();
        let table = joint_counts(&rows, &columns, &expected);
        for (i, row) in table.iter().enumerate() {
            assert_eq!(row.iter().sum::<usize>(), rows[i]);
            for (j, cell) in row.iter().enumerate() {
                assert!((*cell as f64 - expected[i][j]).abs() < 1.0, "{table:?}");
            }
        }
        for (j, column) in columns.iter().enumerate() {
            assert_eq!(table.iter().map(|r| r[j]).sum::<usize>(), *column);
        }
    }

    proptest! {
        #[test]
        fn counts_sum_to_the_total_and_stay_within_one(total in 0usize..3000, raw in prop::collection::vec(1u32..1000, 1..40)) {
            let sum: u32 = raw.iter().sum();
            let weights: Vec<f64> = raw.iter().map(|w| f64::from(*w) / f64::from(sum)).collect();
            let counts = largest_remainder(total, &weights, &natural(weights.len()));
            prop_assert_eq!(counts.iter().sum::<usize>(), total);
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert!((*count as f64 - weight * total as f64).abs() < 1.0 + 1e-6);
            }
        }

        #[test]
        fn tables_have_exactly_their_margins(
            total in 1usize..600,
            a in prop::collection::vec(1u32..100, 1..7),
            b in prop::collection::vec(1u32..100, 1..7),
        ) {
            let share = |raw: &[u32]| -> Vec<f64> {
                let sum: u32 = raw.iter().sum();
                raw.iter().map(|w| f64::from(*w) / f64::from(sum)).collect()
            };
            let (a, b) = (share(&a), share(&b));
            let rows = largest_remainder(total, &a, &natural(a.len()));
            let columns = largest_remainder(total, &b, &natural(b.len()));
            let expected: Vec<Vec<f64>> =
                a.iter().map(|x| b.iter().map(|y| x * y * total as f64).collect()).collect();
            let table = joint_counts(&rows, &columns, &expected);
            for (i, row) in table.iter().enumerate() {
                prop_assert_eq!(row.iter().sum::<usize>(), rows[i]);
            }
            for (j, column) in columns.iter().enumerate() {
                prop_assert_eq!(table.iter().map(|r| r[j]).sum::<usize>(), *column);
            }
        }
    }
}
