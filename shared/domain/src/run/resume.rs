use super::{FieldFault, TrainingSpec};

impl TrainingSpec {
    /// What forbids going on from a checkpoint of `earlier` with this specification: the weights must mean the same, and
    /// other steps or another schedule must be asked for.
    #[must_use]
    pub fn resume_faults(&self, earlier: &Self, checkpoint_step: u32) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let mut say = |pointer: &str, detail: String| {
            faults.push(FieldFault { pointer: pointer.into(), detail });
        };
        let (new, old) = (&self.lora, &earlier.lora);
        let shape = |s: &Self| {
            (s.full_finetuning, s.lora.enable, s.lora.rank, s.lora.skip_depformer, s.lora.ft_embed)
        };
        if shape(self) != shape(earlier) || (new.factor() - old.factor()).abs() > f64::EPSILON {
            say("/lora", "the checkpoint trains other tensors: rank, scaling, skip_depformer, ft_embed and full_finetuning must stay".into());
        }
        if self.force_warm_restart || self.schedule_restart {
            if self.schedule_restart && !self.force_warm_restart && self.max_steps <= checkpoint_step {
                say(
                    "/max_steps",
                    format!(
                        "must be more than the checkpoint's {checkpoint_step} steps, not {}",
                        self.max_steps
                    ),
                );
            }
            return faults;
        }
        if (self.max_steps, self.epochs) != (earlier.max_steps, earlier.epochs) {
            say(
                "/max_steps",
                format!(
                    "the checkpoint belongs to a schedule over {} steps, not {}: set schedule_restart to plan the rest anew",
                    earlier.max_steps, self.max_steps
                ),
            );
        }
        if self.optim != earlier.optim {
            say("/optim", "differs from the checkpoint's: set schedule_restart to plan the rest anew".into());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_steps_are_refused_unless_the_schedule_is_planned_anew() {
        let earlier = TrainingSpec { max_steps: 100, ..TrainingSpec::default() };
        assert!(earlier.resume_faults(&earlier, 50).is_empty());
        let longer = TrainingSpec { max_steps: 200, ..earlier.clone() };
        let faults = longer.resume_faults(&earlier, 100);
        assert!(faults[0].detail.contains("schedule_restart"), "{faults:?}");
        let anew = TrainingSpec { schedule_restart: true, ..longer.clone() };
        assert!(anew.resume_faults(&earlier, 100).is_empty());
        let nothing_left = TrainingSpec { max_steps: 100, ..anew };
        assert_eq!(nothing_left.resume_faults(&earlier, 100)[0].pointer, "/max_steps");
        let warm = TrainingSpec { force_warm_restart: true, ..longer };
        assert!(warm.resume_faults(&earlier, 100).is_empty());
    }

    #[test]
    fn another_rank_is_refused_whatever_is_planned() {
        let earlier = TrainingSpec::default();
        let mut other = TrainingSpec { schedule_restart: true, max_steps: 400, ..TrainingSpec::default() };
        other.lora.rank = 8;
        assert_eq!(other.resume_faults(&earlier, 100)[0].pointer, "/lora");
    }
}
