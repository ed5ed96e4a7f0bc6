//! Exchanges of two rows of one axis that make the axes hang together less. Marginals cannot change by them.

use super::Block;

/// Shuffles tried for an axis before its rows are exchanged one by one.
const SHUFFLES: usize = 64;
/// Axes up to this many levels are shuffled that often; large ones have too many empty combinations for it to matter.
const SMALL: usize = 14;
/// Exchanges tried for each row of the block.
const EXCHANGES_PER_ROW: usize = 12;
/// Fewest exchanges tried for a block: small blocks are cheap.
const MIN_EXCHANGES: usize = 600;

/// Counts of the combinations of two axes over all rows so far, with what is needed to judge an exchange.
struct Pair {
    /// The axis whose rows are exchanged is the first.
    other: usize,
    width: usize,
    counts: Vec<f64>,
    rows: Vec<f64>,
    columns: Vec<f64>,
    total: f64,
    /// Rows so far, times the degrees of freedom that Cramér's V divides by; 0 when one axis is constant.
    scale: f64,
}

impl Pair {
    fn new(a: &[usize], b: &[usize], other: usize, height: usize, width: usize) -> Self {
        let mut pair = Self {
            other,
            width,
            counts: vec![0.0; height * width],
            rows: vec![0.0; height],
            columns: vec![0.0; width],
            total: (a.len() as f64).max(1.0),
            scale: 0.0,
        };
        for (i, j) in a.iter().zip(b) {
            pair.counts[i * width + j] += 1.0;
            pair.rows[*i] += 1.0;
            pair.columns[*j] += 1.0;
        }
        pair.scale = a.len() as f64 * degrees(&pair.rows, &pair.columns);
        pair
    }

    fn expected(&self, i: usize, j: usize) -> f64 {
        self.rows[i] * self.columns[j] / self.total
    }

    /// V².
    fn v_squared(&self) -> f64 {
        if self.scale <= 0.0 {
            return 0.0;
        }
        let mut chi2 = 0.0;
        for (cell, found) in self.counts.iter().enumerate() {
            let expected = self.expected(cell / self.width, cell % self.width);
            if expected > 0.0 {
                chi2 += (found - expected) * (found - expected) / expected;
            }
        }
        chi2 / self.scale
    }

    /// Change of V² when the rows with levels (`a`, `p`) and (`b`, `q`) become (`b`, `p`) and (`a`, `q`).
    fn change(&self, (a, p): (usize, usize), (b, q): (usize, usize)) -> f64 {
        if self.scale <= 0.0 || p == q {
            return 0.0;
        }
        let less = |i: usize, j: usize| (1.0 - 2.0 * self.counts[i * self.width + j]) / self.expected(i, j);
        let more = |i: usize, j: usize| (1.0 + 2.0 * self.counts[i * self.width + j]) / self.expected(i, j);
        (less(a, p) + less(b, q) + more(b, p) + more(a, q)) / self.scale
    }

    fn exchange(&mut self, (a, p): (usize, usize), (b, q): (usize, usize)) {
        self.counts[a * self.width + p] -= 1.0;
        self.counts[b * self.width + q] -= 1.0;
        self.counts[b * self.width + p] += 1.0;
        self.counts[a * self.width + q] += 1.0;
    }
}

fn degrees(rows: &[f64], columns: &[f64]) -> f64 {
    let used = |sums: &[f64]| sums.iter().filter(|s| **s > 0.0).count();
    used(rows).min(used(columns)).saturating_sub(1) as f64
}

/// Cramér's V of two columns with the given numbers of levels; 0 when one of them is constant.
pub(super) fn cramers_v(a: &[usize], b: &[usize], (height, width): (usize, usize)) -> f64 {
    Pair::new(a, b, 0, height, width).v_squared().max(0.0).sqrt()
}

/// The V that columns without any relation have on average: the square root of their mean V².
pub(super) fn v_by_chance(a: &[usize], b: &[usize], (height, width): (usize, usize)) -> f64 {
    let pair = Pair::new(a, b, 0, height, width);
    let used = |sums: &[f64]| sums.iter().filter(|s| **s > 0.0).count() as f64;
    if pair.scale <= 0.0 || a.len() < 2 {
        return 0.0;
    }
    let total = a.len() as f64;
    let chi2 = total / (total - 1.0) * (used(&pair.rows) - 1.0) * (used(&pair.columns) - 1.0);
    (chi2 / pair.scale).sqrt()
}

impl Block<'_> {
    /// Orders the rows of this block, axis by axis, against the axes before it; a joint pair comes first and stays.
    pub(super) fn balance(&mut self) {
        let small = |i: &usize| self.pack.axes[*i].values.len() <= SMALL;
        let (joint, free): (Vec<usize>, Vec<usize>) =
            (0..self.pack.axes.len()).partition(|i| self.joint_partner(*i).is_some());
        let (few, many): (Vec<usize>, Vec<usize>) = free.into_iter().partition(small);
        let mut placed = joint;
        for axis in few {
            self.shuffle_best(axis, &placed);
            self.exchange(axis, &placed);
            placed.push(axis);
        }
        for axis in many {
            self.exchange(axis, &placed);
            placed.push(axis);
        }
    }

    fn first(&self) -> usize {
        self.columns.first().map_or(0, |column| column.len() - self.rows)
    }

    fn pairs(&self, axis: usize, placed: &[usize]) -> Vec<Pair> {
        let levels = |i: usize| self.pack.axes[i].values.len();
        let pair = |other: &usize| {
            Pair::new(&self.columns[axis], &self.columns[*other], *other, levels(axis), levels(*other))
        };
        placed.iter().map(pair).collect()
    }

    /// Keeps the shuffle with the smallest greatest V.
    fn shuffle_best(&mut self, axis: usize, placed: &[usize]) {
        let mut stream = self.stream("shuffles", &self.pack.axes[axis].name);
        let first = self.first();
        let mut best: Option<(f64, Vec<usize>)> = None;
        for _ in 0..if placed.is_empty() { 0 } else { SHUFFLES } {
            stream.shuffle(&mut self.columns[axis][first..]);
            let worst = self.pairs(axis, placed).iter().map(Pair::v_squared).fold(0.0, f64::max);
            if best.as_ref().is_none_or(|(least, _)| worst < *least) {
                best = Some((worst, self.columns[axis][first..].to_vec()));
            }
        }
        if let Some((_, column)) = best {
            self.columns[axis][first..].copy_from_slice(&column);
        }
    }

    /// Exchanges the levels of two rows wherever that makes the sum of V² smaller.
    fn exchange(&mut self, axis: usize, placed: &[usize]) {
        if self.rows < 2 || placed.is_empty() {
            return;
        }
        let mut stream = self.stream("exchanges", &self.pack.axes[axis].name);
        let mut pairs = self.pairs(axis, placed);
        let first = self.first();
        for _ in 0..(EXCHANGES_PER_ROW * self.rows).max(MIN_EXCHANGES) {
            let (x, y) = (first + stream.index(self.rows), first + stream.index(self.rows));
            let (a, b) = (self.columns[axis][x], self.columns[axis][y]);
            if a == b {
                continue;
            }
            let at = |pair: &Pair| ((a, self.columns[pair.other][x]), (b, self.columns[pair.other][y]));
            let change: f64 = pairs.iter().map(|pair| pair.change(at(pair).0, at(pair).1)).sum();
            if change < -1e-12 {
                for pair in &mut pairs {
                    let other = &self.columns[pair.other];
                    pair.exchange((a, other[x]), (b, other[y]));
                }
                self.columns[axis].swap(x, y);
            }
        }
    }
}
