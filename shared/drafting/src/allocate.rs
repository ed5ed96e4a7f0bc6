//! Whole numbers of rows for fractional shares: largest remainder for one axis, controlled rounding for a pair.
//!
//! Shares are whole numbers too, so that no result depends on how a machine rounds.

/// Largest remainder (Hamilton): counts that sum to `total`, each within 1 of its share of it. Ties go to the level that
/// comes first in `order`. Without shares there is nothing to count.
#[must_use]
pub fn largest_remainder(total: usize, shares: &[u64], order: &[usize]) -> Vec<usize> {
    let whole: u128 = shares.iter().map(|s| u128::from(*s)).sum();
    if whole == 0 {
        return vec![0; shares.len()];
    }
    let exact: Vec<u128> = shares.iter().map(|s| u128::from(*s) * wide(total)).collect();
    let mut counts: Vec<usize> = exact.iter().map(|e| narrow(e / whole)).collect();
    let mut by_rest: Vec<usize> = order.to_vec();
    by_rest.sort_by_key(|level| std::cmp::Reverse(exact[*level] % whole));
    let missing = total.saturating_sub(counts.iter().sum());
    for level in by_rest.into_iter().cycle().take(missing) {
        counts[level] += 1;
    }
    counts
}

/// Counts of `total` rows of which `had` exist already: none falls, and the sum is `total`. They are those of
/// [`largest_remainder`] wherever that takes no row away; else as near to the shares as rows that stay allow.
///
/// Largest remainder alone may take a seat away when the house grows (the Alabama paradox); rows that were written stay.
#[must_use]
pub fn extended_remainder(total: usize, shares: &[u64], order: &[usize], had: &[usize]) -> Vec<usize> {
    let fresh = largest_remainder(total, shares, order);
    if fresh.iter().zip(had).all(|(new, old)| new >= old) {
        return fresh;
    }
    let whole: u128 = shares.iter().map(|s| u128::from(*s)).sum();
    let mut counts = had.to_vec();
    let floor = |level: usize| narrow(u128::from(shares[level]) * wide(total) / whole.max(1));
    let lifted: Vec<usize> = (0..shares.len()).map(|level| floor(level).max(had[level])).collect();
    if lifted.iter().sum::<usize>() <= total {
        counts = lifted;
    }
    while counts.iter().sum::<usize>() < total {
        // The largest deficit of share·total − count·whole; both sides are far below the limits of the type.
        let deficit = |level: usize| {
            i128::try_from(u128::from(shares[level]) * wide(total)).unwrap_or(i128::MAX)
                - i128::try_from(wide(counts[level]) * whole).unwrap_or(i128::MAX)
        };
        let Some(next) = order.iter().copied().rev().max_by_key(|level| deficit(*level)) else { break };
        counts[next] += 1;
    }
    counts
}

fn wide(n: usize) -> u128 {
    u128::try_from(n).expect("fits")
}

fn narrow(n: u128) -> usize {
    usize::try_from(n).expect("is at most the total, which is a usize")
}

/// A table of counts with exactly these row and column sums, as close to `expected` as whole numbers get (least sum of
/// squares). Both margins must have the same sum; an expectation below 0 asks for no row.
#[must_use]
pub fn joint_counts(rows: &[usize], columns: &[usize], expected: &[Vec<f64>]) -> Vec<Vec<usize>> {
    let mut table: Vec<Vec<usize>> = expected
        .iter()
        .map(|row| row.iter().map(|e| (e + 1e-9).floor().max(0.0) as usize).collect())
        .collect();
    let column_sum = |t: &[Vec<usize>], j: usize| t.iter().map(|r| r[j]).sum::<usize>();
    let too_much = table.iter().zip(rows).any(|(row, sum)| row.iter().sum::<usize>() > *sum)
        || columns.iter().enumerate().any(|(j, sum)| column_sum(&table, j) > *sum);
    if too_much {
        // Rows that stayed from an earlier block left no room for the floors: every unit takes its own best way.
        table.iter_mut().for_each(|row| row.fill(0));
    }
    loop {
        let starts: Vec<usize> =
            (0..rows.len()).filter(|i| rows[*i] > table[*i].iter().sum::<usize>()).collect();
        if starts.is_empty() {
            return table;
        }
        let distances = shortest(&table, expected, &starts);
        let Some(end) = (0..columns.len())
            .filter(|j| columns[*j] > column_sum(&table, *j))
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
mod tests;
