//! Constraints of a pack (`forbid`), kept by exchanging levels between rows: marginals stay as they are.

use domain::pack::When;

use super::Block;
use crate::error::DraftError;

/// Random rows tried before every row of the block is looked at.
const RANDOM_TRIES: usize = 32;
/// Passes over the block: what was stuck may find a partner once other rows have moved.
const PASSES: usize = 8;

/// A constraint as positions: axis and its forbidden levels.
struct Rule {
    text: String,
    axes: Vec<(usize, Vec<bool>)>,
}

impl Block<'_> {
    /// Makes every row of the block legal; the answer is the number of exchanges.
    ///
    /// # Errors
    /// Names the constraint and the row for which no exchange helps.
    pub(super) fn repair(&mut self) -> Result<usize, DraftError> {
        let rules: Vec<Rule> =
            self.pack.forbid.iter().enumerate().map(|(i, when)| self.rule(i, when)).collect();
        if rules.is_empty() {
            return Ok(0);
        }
        let mut stream = self.stream("repair", "rows");
        let first = self.columns.first().map_or(0, |column| column.len() - self.rows);
        let mut repairs = 0;
        let mut stuck = None;
        for pass in 0..PASSES {
            let before = repairs;
            stuck = None;
            for row in first..first + self.rows {
                while let Some(rule) = rules.iter().find(|rule| self.breaks(rule, row)) {
                    let random = (0..RANDOM_TRIES).map(|_| first + stream.index(self.rows));
                    let others: Vec<usize> = random.chain(first..first + self.rows).collect();
                    // At last a level may get a row more than its share; the next block makes up for it.
                    let slack = usize::from(pass + 1 == PASSES);
                    if !self.exchange_for(&rules, rule, row, &others)
                        && !self.trade_for(&rules, rule, row, slack)
                    {
                        stuck = Some((row, rule.text.clone()));
                        break;
                    }
                    repairs += 1;
                }
            }
            // An exchange may leave its partner with another rule to break: only a pass that changes nothing ends this.
            if stuck.is_none() && repairs == before {
                return Ok(repairs);
            }
        }
        match stuck {
            Some((row, constraint)) => Err(DraftError::Constraint { constraint, row, rows: self.rows }),
            None => Ok(repairs),
        }
    }

    fn rule(&self, number: usize, when: &When) -> Rule {
        let axes = when.iter().filter_map(|(name, levels)| {
            let (i, axis) = self.pack.axis(name)?;
            Some((i, axis.values.iter().map(|v| levels.contains(&v.id)).collect()))
        });
        Rule { text: format!("/forbid/{number} {when:?}"), axes: axes.collect() }
    }

    fn breaks(&self, rule: &Rule, row: usize) -> bool {
        rule.axes.iter().all(|(axis, forbidden)| forbidden[self.columns[*axis][row]])
    }

    fn broken(&self, rules: &[Rule], row: usize) -> usize {
        rules.iter().filter(|rule| self.breaks(rule, row)).count()
    }

    /// Exchanges one level of the row with another row, where both together break fewer rules after it.
    fn exchange_for(&mut self, rules: &[Rule], rule: &Rule, row: usize, others: &[usize]) -> bool {
        for axis in self.free_axes(rule) {
            for other in others.iter().copied().filter(|other| *other != row) {
                let before = self.broken(rules, row) + self.broken(rules, other);
                self.columns[axis].swap(row, other);
                if self.broken(rules, row) + self.broken(rules, other) < before && !self.breaks(rule, row) {
                    return true;
                }
                self.columns[axis].swap(row, other);
            }
        }
        false
    }

    /// The axes of a rule whose rows may be exchanged: those that are not allocated with another.
    fn free_axes(&self, rule: &Rule) -> Vec<usize> {
        rule.axes.iter().map(|(axis, _)| *axis).filter(|axis| self.joint_partner(*axis).is_none()).collect()
    }

    /// In a block too small to exchange within, takes a level that has as good a claim to the row: among levels without
    /// weights, one that has one row less so far, or with `slack` one that has as many.
    fn trade_for(&mut self, rules: &[Rule], rule: &Rule, row: usize, slack: usize) -> bool {
        for axis in self.free_axes(rule).into_iter().filter(|axis| !self.pack.axes[*axis].is_weighted()) {
            let mut counts = vec![0usize; self.pack.axes[axis].values.len()];
            for level in &self.columns[axis] {
                counts[*level] += 1;
            }
            let (now, before) = (self.columns[axis][row], self.broken(rules, row));
            for level in
                (0..counts.len()).filter(|level| *level != now && counts[*level] < counts[now] + slack)
            {
                self.columns[axis][row] = level;
                if self.broken(rules, row) < before {
                    return true;
                }
            }
            self.columns[axis][row] = now;
        }
        false
    }
}
