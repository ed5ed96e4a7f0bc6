//! OneCycle: the learning rate and AdamW's beta1 as functions of the step (finetune.md 6.3).

use std::f64::consts::PI;

/// beta1 where the learning rate is lowest.
const BETA1_HIGH: f64 = 0.95;
/// beta1 where it is highest.
const BETA1_LOW: f64 = 0.85;

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
        let (low, end) = (self.max_lr / 25.0, self.max_lr / 25.0 / 1e4);
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
