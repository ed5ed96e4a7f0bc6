use super::TrainingSpec;

/// One field of a specification that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// RFC 6901 pointer below the specification, e.g. `/optim/lr`.
    pub pointer: String,
    /// What was expected and what was found.
    pub detail: String,
}

struct Faults(Vec<FieldFault>);

impl Faults {
    fn say(&mut self, pointer: &str, detail: impl Into<String>) {
        self.0.push(FieldFault { pointer: pointer.into(), detail: detail.into() });
    }

    fn range(&mut self, pointer: &str, value: f64, low: f64, high: f64) {
        if !(low..=high).contains(&value) {
            self.say(pointer, format!("must be between {low} and {high}, not {value}"));
        }
    }

    fn below(&mut self, pointer: &str, value: f64, low: f64, high: f64) {
        if !(low..high).contains(&value) {
            self.say(pointer, format!("must be at least {low} and below {high}, not {value}"));
        }
    }
}

impl TrainingSpec {
    /// Every field out of its range (finetune.md 10).
    #[must_use]
    pub fn faults(&self) -> Vec<FieldFault> {
        let mut faults = Faults(Vec::new());
        self.sizes(&mut faults);
        self.optimizer(&mut faults);
        self.frozen(&mut faults);
        self.loss(&mut faults);
        self.streams(&mut faults);
        self.watching(&mut faults);
        faults.0
    }

    fn sizes(&self, f: &mut Faults) {
        f.range("/max_steps", f64::from(self.max_steps), 1.0, 1e6);
        if let Some(epochs) = self.epochs {
            f.range("/epochs", epochs, 1e-3, 1e4);
        }
        f.range("/batch_size", f64::from(self.batch_size), 1.0, 512.0);
        f.range("/num_microbatches", f64::from(self.num_microbatches), 1.0, 1024.0);
        f.range("/duration_sec", self.duration_sec, 10.0, 240.0);
        f.range("/sliced_heads_frames", f64::from(self.sliced_heads_frames), 16.0, 4096.0);
        f.range("/log_freq", f64::from(self.log_freq), 1.0, 1e6);
    }

    fn optimizer(&self, f: &mut Faults) {
        let o = &self.optim;
        f.range("/optim/lr", o.lr, 1e-8, 1.0);
        f.range("/optim/weight_decay", o.weight_decay, 0.0, 1.0);
        f.below("/optim/betas/0", o.betas.0, 0.0, 1.0);
        f.below("/optim/betas/1", o.betas.1, 0.0, 1.0);
        f.range("/optim/eps", o.eps, 1e-16, 1.0);
        f.range("/optim/pct_start", o.pct_start, 0.0, 0.99);
        f.range("/max_norm", self.max_norm, 1e-6, 1e6);
        f.range("/lora/rank", f64::from(self.lora.rank), 1.0, 256.0);
        f.range("/lora/scaling", self.lora.scaling, 1e-3, 1e3);
        if self.full_finetuning == self.lora.enable {
            let detail = if self.full_finetuning {
                "must be false when full_finetuning is true: all weights are trained already"
            } else {
                "must be true unless full_finetuning is: nothing would be trained"
            };
            f.say("/lora/enable", detail);
        }
        if self.full_finetuning && self.lora.ft_embed {
            f.say("/lora/ft_embed", "must be false when full_finetuning is true");
        }
        if self.force_warm_restart && self.resume_from.is_none() {
            f.say("/force_warm_restart", "needs resume_from");
        }
        if self.schedule_restart && self.resume_from.is_none() {
            f.say("/schedule_restart", "needs resume_from");
        }
    }

    /// Frozen layers that are not on the device are brought twice a pass, whole layers at a time.
    fn frozen(&self, f: &mut Faults) {
        for (pointer, asked) in
            [("/offload_frozen", self.offload_frozen), ("/shard_frozen", self.shard_frozen)]
        {
            if asked && self.full_finetuning {
                f.say(pointer, "must be false when full_finetuning is true: nothing is frozen then");
            }
            if asked && (!self.gradient_checkpointing || self.recompute_layers.is_some()) {
                f.say(pointer, "needs gradient_checkpointing of all layers (recompute_layers absent)");
            }
        }
        if self.offload_frozen && self.shard_frozen {
            f.say("/shard_frozen", "must be false when offload_frozen is true: the layers are in one place");
        }
    }

    fn loss(&self, f: &mut Faults) {
        f.range("/text_padding_weight", self.text_padding_weight, 0.0, 1.0);
        if let Some(weight) = self.epad_weight {
            f.range("/epad_weight", weight, 0.0, 1.0);
        } else if self.text_padding_weight == 0.0 {
            f.say("/epad_weight", "must be given when text_padding_weight is 0: nothing would teach when to speak (0.5 is a start)");
        }
        f.range("/first_codebook_weight_multiplier", self.first_codebook_weight_multiplier, 1.0, 1000.0);
        f.range("/text_loss_weight", self.text_loss_weight, 0.0, 1e3);
        f.range("/audio_loss_weight", self.audio_loss_weight, 0.0, 1e3);
        if self.text_loss_weight == 0.0 && self.audio_loss_weight == 0.0 {
            f.say("/audio_loss_weight", "must be above 0 when text_loss_weight is 0");
        }
        f.range("/user_audio_weight", self.user_audio_weight, 0.0, 1.0);
        f.range("/lora_l2_weight", self.lora_l2_weight, 0.0, 1.0);
        f.range("/lora_b_decay", self.lora_b_decay, 0.0, 0.1);
        f.range("/kl_base_weight", self.kl_base_weight, 0.0, 10.0);
        if self.kl_base_weight > 0.0 && self.full_finetuning {
            f.say(
                "/kl_base_weight",
                "must be 0 when full_finetuning is true: there is no base left to compare with",
            );
        }
        f.range("/neftune_alpha", self.neftune_alpha, 0.0, 50.0);
    }

    fn streams(&self, f: &mut Faults) {
        if self.data.main_speaker_label.trim().is_empty() {
            f.say("/data/main_speaker_label", "must not be empty");
        }
        let window = (self.duration_sec * crate::frame::FRAME_RATE).max(1.0);
        let s = &self.system_prompt;
        f.range("/system_prompt/audio_silence_frames", f64::from(s.audio_silence_frames), 0.0, 50.0);
        f.range("/system_prompt/max_frames", f64::from(s.max_frames), 20.0, 1500.0);
        let p = &self.puppeteer;
        f.range("/puppeteer/max_tokens_per_injection", f64::from(p.max_tokens_per_injection), 8.0, 200.0);
        f.range("/puppeteer/guard", f64::from(p.guard), 0.0, 10.0);
        f.range("/puppeteer/min_post", f64::from(p.min_post), 0.0, 250.0);
        f.range("/puppeteer/lookback", f64::from(p.lookback), 0.0, 250.0);
        f.range("/puppeteer/min_window", f64::from(p.min_window), 1.0, window);
        f.range("/puppeteer/first_window_weight", p.first_window_weight, 0.1, 10.0);
        f.range("/interleaver/audio_delay", self.interleaver.audio_delay, -10.0, 10.0);
    }

    fn watching(&self, f: &mut Faults) {
        f.range("/eval_max_windows", f64::from(self.eval_max_windows), 1.0, 1e6);
        if let Some(keep) = self.num_ckpt_keep {
            f.range("/num_ckpt_keep", f64::from(keep), 1.0, 1e4);
        }
        if !["eval/", "probe/"].iter().any(|p| self.best_metric.starts_with(p)) {
            let found = &self.best_metric;
            f.say(
                "/best_metric",
                format!("must be a metric of evaluations (eval/... or probe/...), not {found:?}"),
            );
        }
        let p = &self.probe;
        f.range("/probe/prompts", f64::from(p.prompts), 1.0, 64.0);
        f.range("/probe/seconds", p.seconds, 1.0, 120.0);
        f.range("/probe/temp_text", p.temp_text, 0.0, 2.0);
        f.range("/probe/temp_audio", p.temp_audio, 0.0, 2.0);
        let a = &self.alarms;
        f.range("/alarms/window", f64::from(a.window), 1.0, 1e4);
        f.range("/alarms/pred_pad_pct", a.pred_pad_pct, 0.0, 100.0);
        f.range("/alarms/repeat_ratio", a.repeat_ratio, 0.0, 1.0);
        f.range("/alarms/loss_ratio", a.loss_ratio, 1.0, 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_every_wrong_key_is_named() {
        assert_eq!(TrainingSpec::default().faults(), []);
        let text = r#"{"max_steps": 0, "batch_size": 0, "optim": {"lr": -1, "betas": [0.9, 1.0], "pct_start": 1.0},
            "text_padding_weight": 0, "text_loss_weight": 0, "audio_loss_weight": 0, "full_finetuning": true,
            "best_metric": "train/loss", "num_ckpt_keep": 0, "schedule_restart": true}"#;
        let spec: TrainingSpec = serde_json::from_str(text).expect("the keys exist");
        let found: Vec<String> = spec.faults().into_iter().map(|f| f.pointer).collect();
        for pointer in [
            "/max_steps",
            "/batch_size",
            "/optim/lr",
            "/optim/betas/1",
            "/optim/pct_start",
            "/epad_weight",
            "/audio_loss_weight",
            "/lora/enable",
            "/best_metric",
            "/num_ckpt_keep",
            "/schedule_restart",
        ] {
            assert!(found.iter().any(|f| f == pointer), "{pointer} is not in {found:?}");
        }
        assert!(serde_json::from_str::<TrainingSpec>(r#"{"num_ckpt_keep": null}"#).is_ok());
    }
}
