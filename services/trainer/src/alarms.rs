//! Signs of a training gone wrong (finetune.md 9): silence, loops, divergence, a regulariser without effect.

use std::collections::VecDeque;

use domain::run::AlarmSpec;
use serde::{Deserialize, Serialize};

/// Below this share of the loss's gradient, L2 on `lora_B` changes nothing that could be measured.
const L2_EFFECT: f64 = 1e-3;
/// Steps in a row over which that must hold.
const L2_STEPS: u32 = 50;

/// Something a person should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Stable code.
    pub code: String,
    /// Step at which it was seen.
    pub step: u32,
    /// What was found, what was expected, what to do.
    pub detail: String,
    /// Whether it ends a run with `auto_stop`.
    pub grave: bool,
}

/// What has been seen so far; part of a checkpoint, so that a resumed run judges as one that never stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alarms {
    losses: VecDeque<f64>,
    padding: VecDeque<f64>,
    lowest_loss: Option<f64>,
    idle_l2: u32,
    told: Vec<Alarm>,
}

/// Numbers of a step that alarms look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Total loss.
    pub loss: Option<f64>,
    /// Share of frames where padding is predicted, percent.
    pub pred_pad_pct: Option<f64>,
    /// Gradient of L2 over that of the loss; none without L2.
    pub l2_grad_ratio: Option<f64>,
}

impl Alarms {
    /// All alarms so far, in the order in which they were raised.
    #[must_use]
    pub fn told(&self) -> &[Alarm] {
        &self.told
    }

    /// Looks at a training step; returns what is new.
    pub fn step(&mut self, spec: &AlarmSpec, step: u32, seen: Seen) -> Vec<Alarm> {
        let window = spec.window as usize;
        let before = self.told.len();
        if let Some(mean) = mean_of_last(&mut self.padding, seen.pred_pad_pct, window)
            && mean > spec.pred_pad_pct
        {
            let detail = format!(
                "padding is predicted in {mean:.1} % of the frames (mean of {window} steps; alarms.pred_pad_pct {}): the model \
                 falls silent; lower text_padding_weight or the learning rate",
                spec.pred_pad_pct
            );
            self.tell("silence", step, detail, true);
        }
        if let Some(mean) = mean_of_last(&mut self.losses, seen.loss, window) {
            let lowest = self.lowest_loss.map_or(mean, |l| l.min(mean));
            self.lowest_loss = Some(lowest);
            if lowest > 0.0 && mean > lowest * spec.loss_ratio {
                let detail = format!(
                    "the loss is {mean:.4} (mean of {window} steps), {:.2} times its lowest {lowest:.4} (alarms.loss_ratio {}): \
                     lower the learning rate",
                    mean / lowest,
                    spec.loss_ratio
                );
                self.tell("diverging", step, detail, true);
            }
        }
        if let Some(ratio) = seen.l2_grad_ratio {
            self.idle_l2 = if ratio < L2_EFFECT { self.idle_l2 + 1 } else { 0 };
            if self.idle_l2 >= L2_STEPS {
                let detail = format!(
                    "L2 on lora_B has had no measurable effect for {L2_STEPS} steps (its gradient is {ratio:.1e} of the loss's): \
                     lora_b_decay and kl_base_weight act"
                );
                self.tell("l2_no_effect", step, detail, false);
            }
        }
        self.told[before..].to_vec()
    }

    /// Looks at parameters that the loss does not reach.
    pub fn unreached(&mut self, step: u32, names: &[String]) -> Vec<Alarm> {
        let before = self.told.len();
        if let Some(first) = names.first() {
            let detail = format!(
                "{} trained tensors get no gradient, the first is {first}: a loss weight of 0, or adapters that nothing uses",
                names.len()
            );
            self.tell("unreached", step, detail, false);
        }
        self.told[before..].to_vec()
    }

    /// Looks at a generation probe: the share of generated words inside repeated passages, and whether the model gave a
    /// number that is not finite.
    pub fn probe(&mut self, spec: &AlarmSpec, step: u32, repeat_ratio: Option<f64>, nan: bool) -> Vec<Alarm> {
        let before = self.told.len();
        if nan {
            let detail = "the model gives numbers that are not finite when it talks on its own: lower the learning rate";
            self.tell("not_finite", step, detail.into(), true);
        }
        if let Some(ratio) = repeat_ratio.filter(|r| *r > spec.repeat_ratio) {
            let detail = format!(
                "{:.0} % of what the model says on its own repeats itself (alarms.repeat_ratio {}): it loops; lower the learning \
                 rate or stop earlier",
                100.0 * ratio,
                spec.repeat_ratio
            );
            self.tell("repetition", step, detail, true);
        }
        self.told[before..].to_vec()
    }

    /// Each alarm is told once.
    fn tell(&mut self, code: &str, step: u32, detail: String, grave: bool) {
        if !self.told.iter().any(|a| a.code == code) {
            self.told.push(Alarm { code: code.into(), step, detail, grave });
        }
    }
}

/// Mean over the last `window` values, once there are so many.
fn mean_of_last(values: &mut VecDeque<f64>, value: Option<f64>, window: usize) -> Option<f64> {
    values.push_back(value.filter(|v| v.is_finite())?);
    while values.len() > window {
        values.pop_front();
    }
    (values.len() == window).then(|| values.iter().sum::<f64>() / window as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> AlarmSpec {
        AlarmSpec { window: 3, ..AlarmSpec::default() }
    }

    fn codes(alarms: &[Alarm]) -> Vec<&str> {
        alarms.iter().map(|a| a.code.as_str()).collect()
    }

    #[test]
    fn a_model_that_predicts_only_padding_for_a_window_of_steps_is_told_once() {
        let mut alarms = Alarms::default();
        let mut told = Vec::new();
        for (step, pct) in [(1, 50.0), (2, 99.9), (3, 99.9), (4, 99.9), (5, 100.0)] {
            let seen = Seen { pred_pad_pct: Some(pct), ..Seen::default() };
            told.extend(alarms.step(&spec(), step, seen));
        }
        assert_eq!(codes(&told), ["silence"]);
        assert_eq!(told[0].step, 4, "the first three whole steps of silence");
    }

    #[test]
    fn a_loss_that_grows_is_told_and_a_single_high_step_is_not() {
        let mut alarms = Alarms::default();
        let run = |alarms: &mut Alarms, losses: &[f64]| -> Vec<Alarm> {
            let step = |(i, l): (usize, &f64)| {
                alarms.step(&spec(), i as u32, Seen { loss: Some(*l), ..Seen::default() })
            };
            losses.iter().enumerate().flat_map(step).collect()
        };
        assert_eq!(run(&mut alarms, &[4.0, 3.0, 3.0, 3.0, 4.0, 3.0]), []);
        assert_eq!(codes(&run(&mut alarms, &[5.0, 6.0, 7.0])), ["diverging"]);
    }

    #[test]
    fn l2_without_effect_is_told_after_fifty_steps_and_is_not_grave() {
        let mut alarms = Alarms::default();
        let told: Vec<Alarm> = (1..=60)
            .flat_map(|step| {
                alarms.step(&spec(), step, Seen { l2_grad_ratio: Some(1e-5), ..Seen::default() })
            })
            .collect();
        assert_eq!(codes(&told), ["l2_no_effect"]);
        assert!(told[0].step == 50 && !told[0].grave);
    }

    #[test]
    fn loops_are_told_and_a_state_that_was_stored_judges_on() -> Result<(), serde_json::Error> {
        let mut alarms = Alarms::default();
        assert_eq!(alarms.probe(&spec(), 1, Some(0.2), false), []);
        let mut again: Alarms = serde_json::from_str(&serde_json::to_string(&alarms)?)?;
        assert_eq!(codes(&again.probe(&spec(), 2, Some(0.9), false)), ["repetition"]);
        let mut third: Alarms = serde_json::from_str(&serde_json::to_string(&again)?)?;
        assert_eq!(third.probe(&spec(), 3, Some(0.9), false), [], "told before");
        assert_eq!(codes(&third.probe(&spec(), 4, None, true)), ["not_finite"]);
        Ok(())
    }
}
