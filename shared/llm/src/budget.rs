//! A hard limit of spending in one process: the worst case of a call is reserved before it is made.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{ErrorKind, LlmError};

#[derive(Debug, Default)]
struct State {
    spent: u64,
    reserved: u64,
}

/// Millionths of a dollar that may be spent; cheap to clone, clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    state: Arc<Mutex<State>>,
    limit: u64,
}

impl Budget {
    /// At most `limit` millionths of a dollar.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { state: Arc::default(), limit }
    }

    /// Sets the worst case of a call aside.
    ///
    /// # Errors
    /// `BudgetExceeded`; then the call must not be made.
    pub fn reserve(&self, worst: u64) -> Result<Reservation, LlmError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = state.spent.saturating_add(state.reserved).saturating_add(worst);
        if needed > self.limit {
            return Err(LlmError::new(
                ErrorKind::BudgetExceeded,
                format!(
                    "the next call may cost {worst} millionths of a dollar; {} of {} are spent and {} reserved",
                    state.spent, self.limit, state.reserved
                ),
            ));
        }
        state.reserved += worst;
        Ok(Reservation { budget: self.clone(), worst, settled: false })
    }

    /// What was spent, calls of unknown end at their worst case.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).spent
    }
}

/// What is set aside for one call. Dropped without a word it counts as spent: nobody knows what became of the call.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    worst: u64,
    settled: bool,
}

impl Reservation {
    /// The call cost this much.
    pub fn settle(mut self, cost: u64) {
        self.end(cost);
    }

    fn end(&mut self, cost: u64) {
        let mut state = self.budget.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reserved -= self.worst;
        state.spent = state.spent.saturating_add(cost);
        self.settled = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.settled {
            self.end(self.worst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_starts_that_could_pass_the_limit_and_a_call_of_unknown_end_counts_whole() {
        let budget = Budget::new(100);
        let one = budget.reserve(60).expect("fits");
        assert_eq!(budget.reserve(60).expect_err("would pass it").kind, ErrorKind::BudgetExceeded);
        one.settle(10);
        let two = budget.reserve(60).expect("fits now");
        drop(two);
        assert_eq!(budget.spent(), 70);
        assert!(budget.reserve(31).is_err() && budget.reserve(30).is_ok());
    }
}
