//! The sampling design: a categorical Latin hypercube over the eight axes of a pack (finetune.md 2.1).
//!
//! Every marginal is the largest remainder of its shares, the pairs named in the pack are allocated together, and rows
//! are exchanged until the axes hang together as little as exchanges allow. A design grows by blocks: each continues the
//! counts of those before it, so that the marginals of the whole are exact again, and never changes an earlier row. A
//! design follows from (pack, blocks, seed) alone, so that any worker can compute any shard of it.

use std::collections::BTreeMap;

use domain::dialogue::DesignRow;
use domain::pack::{Axis, DomainPack};
use sha2::{Digest, Sha256};

use crate::allocate::{extended_remainder, joint_counts};
use crate::error::DraftError;
use crate::rng::Stream;

mod balance;
mod constraints;
mod report;

pub use report::{AxisReport, DesignReport, LevelReport, PairReport};

/// A design: for each row, one level of each axis.
#[derive(Debug, Clone)]
pub struct Design {
    /// Id of the design up to and with each block, and the number of rows up to there.
    blocks: Vec<(String, usize)>,
    /// By axis, then by row: index of the level.
    columns: Vec<Vec<usize>>,
    /// Exchanges that the constraints took.
    repairs: usize,
}

impl Design {
    /// Computes a design of one block.
    ///
    /// # Errors
    /// When a constraint of the pack cannot be kept.
    pub fn new(pack: &DomainPack, rows: u32, seed: u64) -> Result<Self, DraftError> {
        Self::of_blocks(pack, &[rows], seed)
    }

    /// Computes a design of several blocks, each of which extends those before it.
    ///
    /// # Errors
    /// When a constraint of the pack cannot be kept.
    pub fn of_blocks(pack: &DomainPack, blocks: &[u32], seed: u64) -> Result<Self, DraftError> {
        let mut design = Self { blocks: Vec::new(), columns: vec![Vec::new(); pack.axes.len()], repairs: 0 };
        for (number, rows) in blocks.iter().enumerate() {
            let rows = usize::try_from(*rows).unwrap_or(usize::MAX);
            let mut block =
                Block { pack, seed, number: number.to_string(), rows, columns: &mut design.columns };
            block.allocate();
            block.balance();
            design.repairs += block.repair()?;
            let total = design.rows() + rows;
            design.blocks.push((design_id(pack, blocks.get(..=number).unwrap_or(blocks), seed), total));
        }
        Ok(design)
    }

    /// Hash of pack id and version, axes, constraints, blocks and seed: 16 hex digits.
    #[must_use]
    pub fn id(&self) -> &str {
        self.blocks.last().map_or("", |(id, _)| id)
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.blocks.last().map_or(0, |(_, rows)| *rows)
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

    /// Where a row's record says it comes from: the id is that of the design with which the row came, so that a design
    /// with more blocks gives the same records for the same rows.
    #[must_use]
    pub fn row(&self, row: u32) -> DesignRow {
        let at = usize::try_from(row).unwrap_or(usize::MAX);
        let block = self.blocks.iter().find(|(_, end)| at < *end);
        DesignRow { design_id: block.map_or_else(|| self.id().to_owned(), |(id, _)| id.clone()), row }
    }
}

/// The block that is being computed; its rows are the last of the columns.
struct Block<'a> {
    pack: &'a DomainPack,
    seed: u64,
    number: String,
    rows: usize,
    columns: &'a mut Vec<Vec<usize>>,
}

impl Block<'_> {
    /// Adds the rows with exact counts, in an order without meaning.
    fn allocate(&mut self) {
        for pair in &self.pack.joint {
            if let [Some((a, _)), Some((b, _))] = [self.pack.axis(&pair[0]), self.pack.axis(&pair[1])] {
                self.allocate_pair(a, b);
            }
        }
        for (i, axis) in self.pack.axes.iter().enumerate() {
            if self.joint_partner(i).is_none() {
                let counts = self.counts(i);
                let mut levels = repeated(&counts);
                self.stream("design", &axis.name).shuffle(&mut levels);
                self.columns[i].extend(levels);
            }
        }
    }

    /// Both columns of a pair, shuffled as a unit; each marginal is exact by itself and every combination gets its share.
    fn allocate_pair(&mut self, a: usize, b: usize) {
        let (first, second) = (&self.pack.axes[a], &self.pack.axes[b]);
        let (heights, widths) = (self.counts(a), self.counts(b));
        let total = (self.columns[a].len() + self.rows) as f64;
        let mut wanted: Vec<Vec<f64>> = first
            .weights()
            .iter()
            .map(|x| second.weights().iter().map(|y| x * y * total).collect())
            .collect();
        for (i, j) in self.columns[a].iter().zip(&self.columns[b]) {
            wanted[*i][*j] -= 1.0;
        }
        let table = joint_counts(&heights, &widths, &wanted);
        let mut cells: Vec<(usize, usize)> = Vec::with_capacity(self.rows);
        for (i, row) in table.iter().enumerate() {
            for (j, count) in row.iter().enumerate() {
                cells.extend(std::iter::repeat_n((i, j), *count));
            }
        }
        self.stream("pair", &format!("{}+{}", first.name, second.name)).shuffle(&mut cells);
        let (left, right): (Vec<usize>, Vec<usize>) = cells.into_iter().unzip();
        self.columns[a].extend(left);
        self.columns[b].extend(right);
    }

    /// Rows of each level in this block. Levels without weights have only ties, so the order in which they get a row
    /// more is drawn: otherwise a design smaller than the axis would always take its first levels.
    fn counts(&self, i: usize) -> Vec<usize> {
        let axis = &self.pack.axes[i];
        let mut order: Vec<usize> = (0..axis.values.len()).collect();
        if !axis.is_weighted() {
            // The same for every block: the next one goes on where this one ends.
            Stream::new(self.seed, &["order", &axis.name]).shuffle(&mut order);
        }
        let mut had = vec![0; axis.values.len()];
        for level in &self.columns[i] {
            had[*level] += 1;
        }
        let total = self.columns[i].len() + self.rows;
        let counts = extended_remainder(total, &axis.shares(), &order, &had);
        counts.into_iter().zip(had).map(|(all, before)| all - before).collect()
    }

    fn stream(&self, purpose: &str, name: &str) -> Stream {
        Stream::new(self.seed, &[purpose, name, &self.number])
    }

    /// The axis that this one is allocated together with.
    fn joint_partner(&self, axis: usize) -> Option<usize> {
        let name = &self.pack.axes[axis].name;
        self.pack.joint.iter().find_map(|[a, b]| {
            let partner = if a == name {
                b
            } else if b == name {
                a
            } else {
                return None;
            };
            self.pack.axis(partner).map(|(i, _)| i)
        })
    }
}

fn repeated(counts: &[usize]) -> Vec<usize> {
    counts.iter().enumerate().flat_map(|(level, count)| std::iter::repeat_n(level, *count)).collect()
}

fn design_id(pack: &DomainPack, blocks: &[u32], seed: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("plexforge design 2\n{} {}\n{blocks:?} {seed}\n", pack.id, pack.version));
    for axis in &pack.axes {
        for (value, share) in axis.values.iter().zip(axis.shares()) {
            hash.update(format!("{}\t{}\t{share}\n", axis.name, value.id));
        }
    }
    for [a, b] in &pack.joint {
        hash.update(format!("{a}+{b}\n"));
    }
    hash.update(format!("{:?}\n", pack.forbid));
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
