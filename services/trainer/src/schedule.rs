//! The learning rate and AdamW's beta1 as functions of the step (finetune.md 6.3).

use std::f64::consts::PI;

use domain::run::{OptimSpec, Schedule};

/// beta1 where the learning rate is lowest.
const BETA1_HIGH: f64 = 0.95;
/// beta1 where it is highest.
const BETA1_LOW: f64 = 0.85;
/// Highest learning rate over the first one, and the first over the last.
const START: f64 = 25.0;
const END: f64 = 1e4;

/// What the optimizer is told at every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LrPlan {
    shape: Schedule,
    cycle: OneCycle,
    beta1: f64,
    cycle_momentum: bool,
    /// Steps that were done before this was planned.
    first: u32,
}

impl LrPlan {
    /// A plan for steps `first` to `max_steps`.
    #[must_use]
    pub fn new(spec: &OptimSpec, max_steps: u32, first: u32) -> Self {
        let steps = max_steps.saturating_sub(first).max(1);
        Self {
            shape: spec.schedule,
            cycle: OneCycle { max_lr: spec.lr, steps, pct_start: spec.pct_start },
            beta1: spec.betas.0,
            cycle_momentum: spec.cycle_momentum,
            first,
        }
    }

    /// Learning rate and beta1 of step `n`, counted from 0 over the whole run.
    #[must_use]
    pub fn at(&self, n: u32) -> (f64, f64) {
        let n = n.saturating_sub(self.first);
        match self.shape {
            Schedule::Onecycle => {
                let (lr, beta1) = self.cycle.at(n);
                (lr, if self.cycle_momentum { beta1 } else { self.beta1 })
            }
            Schedule::CosineWarmup | Schedule::ConstantWarmup => (self.warmed(n), self.beta1),
        }
    }

    /// The warm-up reaches the highest rate with its last step; a warm-up of less than a step is none.
    fn warmed(&self, n: u32) -> f64 {
        let OneCycle { max_lr, steps, pct_start } = self.cycle;
        let warm_up = (pct_start * f64::from(steps)).floor();
        let (n, last) = (f64::from(n), f64::from(steps) - 1.0);
        if n < warm_up {
            return max_lr * (n + 1.0) / warm_up;
        }
        if self.shape == Schedule::ConstantWarmup || last <= warm_up {
            return max_lr;
        }
        anneal(max_lr, max_lr / START / END, ((n - warm_up) / (last - warm_up)).min(1.0))
    }
}

/// A plan over a fixed number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycle {
    /// Highest learning rate.
    pub max_lr: f64,
    /// Steps in all.
    pub steps: u32,
    /// Share that warms up.
    pub pct_start: f64,
}

impl OneCycle {
    /// Learning rate and beta1 of step `n`, counted from 0; past the end they stay at the last value.
    #[must_use]
    pub fn at(&self, n: u32) -> (f64, f64) {
        let (low, end) = (self.max_lr / START, self.max_lr / START / END);
        let (up, last) = (self.pct_start * f64::from(self.steps) - 1.0, f64::from(self.steps) - 1.0);
        let n = f64::from(n).min(last);
        if up > 0.0 && n <= up {
            let x = n / up;
            (anneal(low, self.max_lr, x), anneal(BETA1_HIGH, BETA1_LOW, x))
        } else if last > up {
            // `up` is negative when the warm-up has no step: the descent then began before the first one.
            let x = (n - up) / (last - up);
            (anneal(self.max_lr, end, x), anneal(BETA1_LOW, BETA1_HIGH, x))
        } else {
            (self.max_lr, BETA1_LOW)
        }
    }
}

fn anneal(from: f64, to: f64, x: f64) -> f64 {
    to + (from - to) / 2.0 * (1.0 + (PI * x).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_low_peaks_at_the_end_of_the_warm_up_and_ends_near_zero() {
        let plan = OneCycle { max_lr: 1.0, steps: 100, pct_start: 0.1 };
        assert!((plan.at(0).0 - 0.04).abs() < 1e-12);
        assert!((plan.at(9).0 - 1.0).abs() < 1e-12);
        assert!((plan.at(9).1 - BETA1_LOW).abs() < 1e-12);
        assert!((plan.at(99).0 - 4e-6).abs() < 1e-12);
        assert_eq!(plan.at(99), plan.at(1_000));
    }

    #[test]
    fn a_warm_up_ends_at_the_highest_rate_and_the_constant_stays_there_while_the_cosine_falls() {
        for (schedule, last) in [(Schedule::ConstantWarmup, 1.0), (Schedule::CosineWarmup, 4e-6)] {
            let spec = OptimSpec { lr: 1.0, schedule, ..OptimSpec::default() };
            let plan = LrPlan::new(&spec, 100, 0);
            assert!((plan.at(0).0 - 0.1).abs() < 1e-12);
            assert!((plan.at(9).0 - 1.0).abs() < 1e-12 && (plan.at(10).0 - 1.0).abs() < 1e-12);
            assert!((plan.at(99).0 - last).abs() < 1e-12, "{schedule:?}: {}", plan.at(99).0);
            assert!((plan.at(0).1 - 0.9).abs() < 1e-12, "beta1 does not move");
            for (steps, n) in [(1, 0), (1, 5), (3, 0), (3, 2), (3, 9)] {
                let lr = LrPlan::new(&spec, steps, 0).at(n).0;
                assert!(lr.is_finite() && lr > 0.0 && lr <= 1.0, "{schedule:?} {steps} {n}: {lr}");
            }
        }
    }

    #[test]
    fn a_plan_made_anew_begins_with_its_own_warm_up_and_a_fixed_beta1_stays_fixed() {
        let spec = OptimSpec { lr: 1.0, cycle_momentum: false, ..OptimSpec::default() };
        let (anew, fresh) = (LrPlan::new(&spec, 300, 200), LrPlan::new(&spec, 100, 0));
        for n in 0..100 {
            assert_eq!(anew.at(200 + n), fresh.at(n));
            assert!((anew.at(200 + n).1 - 0.9).abs() < 1e-12);
        }
    }

    #[test]
    fn no_length_and_no_warm_up_give_finite_positive_rates() {
        for (steps, pct_start) in [(1, 0.1), (1, 0.0), (2, 0.5), (3, 0.05), (20, 0.05), (10, 0.0)] {
            let plan = OneCycle { max_lr: 1e-3, steps, pct_start };
            for n in 0..steps + 2 {
                let (lr, beta1) = plan.at(n);
                assert!(lr.is_finite() && lr > 0.0 && lr <= 1e-3 + 1e-15, "{steps} {pct_start} {n}: {lr}");
                assert!((BETA1_LOW..=BETA1_HIGH).contains(&beta1));
            }
        }
    }

    #[test]
    fn every_table_of_the_reference_is_met_golden() {
        let golden = testkit::golden_json("finetune/d_optim/onecycle.json").expect("the golden set is there");
        let mut compared = 0;
        for table in golden["tables"].as_array().expect("a list of tables") {
            // Tables without values record what the reference cannot compute.
            let Some(rates) = table["lr"].as_array() else { continue };
            let number = |field: &str| table[field].as_f64().expect(field);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
            let steps = number("total_steps") as u32;
            let plan = OneCycle { max_lr: number("max_lr"), steps, pct_start: number("pct_start") };
            for (i, wanted) in rates.iter().enumerate() {
                let n = table["step_index"][i].as_u64().and_then(|n| u32::try_from(n).ok()).expect("a step");
                let (lr, beta1) = plan.at(n);
                let lr_wanted = wanted.as_f64().expect("a rate");
                let beta1_wanted = table["beta1"][i].as_f64().expect("beta1");
                assert!((lr / lr_wanted - 1.0).abs() < 1e-9, "{plan:?} step {n}: {lr}, not {lr_wanted}");
                assert!(
                    (beta1 - beta1_wanted).abs() < 1e-9,
                    "{plan:?} step {n}: {beta1}, not {beta1_wanted}"
                );
                compared += 1;
            }
        }
        assert!(compared > 50, "{compared}");
    }
}
