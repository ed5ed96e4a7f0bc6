use proptest::prelude::*;

use super::*;

fn natural(length: usize) -> Vec<usize> {
    (0..length).collect()
}

fn expected(a: &[u64], b: &[u64], total: usize) -> Vec<Vec<f64>> {
    let (x, y) = (a.iter().sum::<u64>() as f64, b.iter().sum::<u64>() as f64);
    a.iter().map(|i| b.iter().map(|j| *i as f64 / x * (*j as f64 / y) * total as f64).collect()).collect()
}

#[test]
fn the_largest_fractions_get_the_rest_and_ties_go_by_order() {
    assert_eq!(largest_remainder(12, &[25, 50, 15, 10], &natural(4)), [3, 6, 2, 1]);
    assert_eq!(largest_remainder(2, &[1; 4], &natural(4)), [1, 1, 0, 0]);
    assert_eq!(largest_remainder(2, &[1; 4], &[3, 1, 0, 2]), [0, 1, 0, 1]);
    assert_eq!(largest_remainder(30, &[1; 10], &natural(10)), [3; 10]);
    assert_eq!(largest_remainder(500, &[20, 20, 20, 20, 10, 10], &natural(6)), [100, 100, 100, 100, 50, 50]);
}

#[test]
fn a_growing_house_takes_no_row_away_even_where_largest_remainder_would() {
    // The classic paradox: the small level has 2 of 10 and would have 1 of 11.
    let shares = [6, 6, 2];
    assert_eq!(largest_remainder(10, &shares, &natural(3)), [4, 4, 2]);
    assert_eq!(largest_remainder(11, &shares, &natural(3)), [5, 5, 1]);
    let grown = extended_remainder(11, &shares, &natural(3), &[4, 4, 2]);
    assert_eq!(grown, [5, 4, 2]);
    // The next row makes up for it.
    assert_eq!(extended_remainder(12, &shares, &natural(3), &grown), [5, 5, 2]);
    assert_eq!(largest_remainder(12, &shares, &natural(3)), [5, 5, 2]);
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

/// The least sum of squares of all tables with these margins, by trying them all.
fn least(rows: &[usize], columns: &[usize], expected: &[Vec<f64>]) -> f64 {
    fn fill(
        row: usize,
        at: usize,
        left: usize,
        columns: &mut Vec<usize>,
        rows: &[usize],
        e: &[Vec<f64>],
    ) -> f64 {
        if at + 1 == columns.len() {
            if columns[at] < left {
                return f64::INFINITY;
            }
            columns[at] -= left;
            let here = (left as f64 - e[row][at]).powi(2);
            let rest = rows.get(row + 1).map_or(0.0, |next| fill(row + 1, 0, *next, columns, rows, e));
            columns[at] += left;
            return here + rest;
        }
        let mut best = f64::INFINITY;
        for take in 0..=left.min(columns[at]) {
            columns[at] -= take;
            let here = (take as f64 - e[row][at]).powi(2);
            best = best.min(here + fill(row, at + 1, left - take, columns, rows, e));
            columns[at] += take;
        }
        best
    }
    fill(0, 0, rows[0], &mut columns.to_vec(), rows, expected)
}

proptest! {
    #[test]
    fn counts_sum_to_the_total_and_stay_within_one(total in 0usize..5001, shares in prop::collection::vec(1u64..1000, 1..90)) {
        let sum = shares.iter().sum::<u64>() as f64;
        let counts = largest_remainder(total, &shares, &natural(shares.len()));
        prop_assert_eq!(counts.iter().sum::<usize>(), total);
        for (count, share) in counts.iter().zip(&shares) {
            prop_assert!((*count as f64 - *share as f64 / sum * total as f64).abs() < 1.0);
        }
    }

    #[test]
    fn blocks_never_take_rows_away_and_their_sums_are_largest_remainders_wherever_those_take_none(
        blocks in prop::collection::vec(1usize..700, 1..6),
        shares in prop::collection::vec(1u64..100, 1..12),
    ) {
        let whole = shares.iter().sum::<u64>() as f64;
        let order = natural(shares.len());
        let (mut total, mut had) = (0, vec![0; shares.len()]);
        for block in blocks {
            total += block;
            let fresh = largest_remainder(total, &shares, &order);
            let counts = extended_remainder(total, &shares, &order, &had);
            prop_assert_eq!(counts.iter().sum::<usize>(), total);
            prop_assert!(counts.iter().zip(&had).all(|(new, old)| new >= old));
            let feasible = fresh.iter().zip(&had).all(|(new, old)| new >= old);
            prop_assert!(!feasible || counts == fresh);
            for (count, share) in counts.iter().zip(&shares) {
                prop_assert!((*count as f64 - *share as f64 / whole * total as f64).abs() < 2.0);
            }
            had = counts;
        }
    }

    #[test]
    fn tables_have_exactly_their_margins(
        total in 1usize..600,
        a in prop::collection::vec(1u64..100, 1..7),
        b in prop::collection::vec(1u64..100, 1..7),
    ) {
        let rows = largest_remainder(total, &a, &natural(a.len()));
        let columns = largest_remainder(total, &b, &natural(b.len()));
        let table = joint_counts(&rows, &columns, &expected(&a, &b, total));
        for (i, row) in table.iter().enumerate() {
            prop_assert_eq!(row.iter().sum::<usize>(), rows[i]);
        }
        for (j, column) in columns.iter().enumerate() {
            prop_assert_eq!(table.iter().map(|r| r[j]).sum::<usize>(), *column);
        }
    }

    #[test]
    fn small_tables_are_the_nearest_of_all_even_where_a_cell_wants_less_than_nothing(
        cells in prop::collection::vec(prop::collection::vec(0usize..3, 3), 3),
        wanted in prop::collection::vec(prop::collection::vec(-1.5f64..3.0, 3), 3),
    ) {
        let rows: Vec<usize> = cells.iter().map(|r| r.iter().sum()).collect();
        let columns: Vec<usize> = (0..3).map(|j| cells.iter().map(|r| r[j]).sum()).collect();
        let table = joint_counts(&rows, &columns, &wanted);
        let squares = |t: &[Vec<usize>]| -> f64 {
            t.iter().flatten().zip(wanted.iter().flatten()).map(|(n, e)| (*n as f64 - e).powi(2)).sum()
        };
        for (j, column) in columns.iter().enumerate() {
            prop_assert_eq!(table.iter().map(|r| r[j]).sum::<usize>(), *column);
        }
        prop_assert!((squares(&table) - least(&rows, &columns, &wanted)).abs() < 1e-6, "{table:?}");
    }
}
