//! What a design holds, for people who have to trust it.

use domain::pack::DomainPack;
use serde::Serialize;

use super::Design;
use super::balance::{cramers_v, v_by_chance};

/// Counts and relations of a design.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct DesignReport {
    /// Id of the design.
    #[schema(example = "3f0c2a9be1d84c77")]
    pub design_id: String,
    /// Rows of each block.
    pub blocks: Vec<usize>,
    /// Rows in all.
    pub rows: usize,
    /// Rows whose levels were exchanged to keep the pack's constraints.
    pub repairs: usize,
    /// Largest distance of a count from its share, in rows; below 1 for every design of one block.
    pub largest_deviation: f64,
    /// Every axis.
    pub axes: Vec<AxisReport>,
    /// Every pair of axes.
    pub pairs: Vec<PairReport>,
}

/// Counts of an axis.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct AxisReport {
    /// Name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<LevelReport>,
}

/// Counts of a level.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct LevelReport {
    /// Id.
    pub id: String,
    /// Rows that its weight asks for.
    pub wanted: f64,
    /// Rows that it has.
    pub rows: usize,
    /// Rows that it has in each block.
    pub by_block: Vec<usize>,
}

/// How much two axes hang together.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct PairReport {
    /// An axis.
    pub a: String,
    /// Another.
    pub b: String,
    /// Cramér's V: 0 when knowing one says nothing about the other, 1 when it says everything.
    pub cramers_v: f64,
    /// The V that columns shuffled at random have on average.
    pub by_chance: f64,
}

impl Design {
    /// Counts of every level and Cramér's V of every pair.
    #[must_use]
    pub fn report(&self, pack: &DomainPack) -> DesignReport {
        let starts: Vec<usize> = std::iter::once(0).chain(self.blocks.iter().map(|(_, end)| *end)).collect();
        let axes: Vec<AxisReport> =
            (0..pack.axes.len()).map(|i| self.axis_report(pack, i, &starts)).collect();
        let deviation = |level: &LevelReport| (level.rows as f64 - level.wanted).abs();
        DesignReport {
            design_id: self.id().to_owned(),
            blocks: starts.windows(2).map(|pair| pair[1] - pair[0]).collect(),
            rows: self.rows(),
            repairs: self.repairs,
            largest_deviation: axes.iter().flat_map(|a| &a.levels).map(deviation).fold(0.0, f64::max),
            pairs: self.pair_reports(pack),
            axes,
        }
    }

    fn axis_report(&self, pack: &DomainPack, i: usize, starts: &[usize]) -> AxisReport {
        let (axis, column) = (&pack.axes[i], &self.columns[i]);
        let shares = axis.shares();
        let whole = shares.iter().sum::<u64>().max(1) as f64;
        let count = |rows: &[usize], level: usize| rows.iter().filter(|l| **l == level).count();
        let level = |(j, value): (usize, &domain::pack::AxisValue)| LevelReport {
            id: value.id.clone(),
            wanted: shares[j] as f64 / whole * column.len() as f64,
            rows: count(column, j),
            by_block: starts.windows(2).map(|pair| count(&column[pair[0]..pair[1]], j)).collect(),
        };
        AxisReport { name: axis.name.clone(), levels: axis.values.iter().enumerate().map(level).collect() }
    }

    fn pair_reports(&self, pack: &DomainPack) -> Vec<PairReport> {
        let mut pairs = Vec::new();
        for (i, a) in pack.axes.iter().enumerate() {
            for (j, b) in pack.axes.iter().enumerate().skip(i + 1) {
                let sizes = (a.values.len(), b.values.len());
                pairs.push(PairReport {
                    a: a.name.clone(),
                    b: b.name.clone(),
                    cramers_v: cramers_v(&self.columns[i], &self.columns[j], sizes),
                    by_chance: v_by_chance(&self.columns[i], &self.columns[j], sizes),
                });
            }
        }
        pairs
    }
}
