//! Trainings.

use serde::{Deserialize, Serialize};

/// What to train with; the keys of finetune.md 10 that part 1 uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingSpec {
    /// Optimizer updates.
    pub max_steps: u32,
    /// Windows per micro-batch.
    pub batch_size: u32,
    /// Micro-batches per update.
    pub num_microbatches: u32,
    /// Seconds of a window, prompt included.
    pub duration_sec: f64,
    /// Optimizer.
    pub optim: OptimSpec,
    /// Adapters.
    pub lora: LoraSpec,
    /// Global gradient norm limit.
    pub max_norm: f64,
    /// Weight of PAD and EPAD targets in the text loss.
    pub text_padding_weight: f64,
    /// Weight of the semantic codebooks.
    pub first_codebook_weight_multiplier: f64,
    /// Weight of the text loss.
    pub text_loss_weight: f64,
    /// Weight of the audio loss.
    pub audio_loss_weight: f64,
    /// L2 on `lora_B`.
    pub lora_l2_weight: f64,
    /// Steps between evaluations; 0 = only at the start and the end.
    pub eval_freq: u32,
    /// Steps between checkpoints; 0 = only at the end.
    pub ckpt_freq: u32,
    /// Checkpoints to keep.
    pub num_ckpt_keep: u32,
    /// Seed of adapters and data order.
    pub seed: u64,
}

impl Default for TrainingSpec {
    fn default() -> Self {
        Self {
            max_steps: 200,
            batch_size: 4,
            num_microbatches: 1,
            duration_sec: 163.84,
            optim: OptimSpec::default(),
            lora: LoraSpec::default(),
            max_norm: 1.0,
            text_padding_weight: 0.03,
            first_codebook_weight_multiplier: 4.0,
            text_loss_weight: 1.0,
            audio_loss_weight: 0.5,
            lora_l2_weight: 1e-4,
            eval_freq: 32,
            ckpt_freq: 64,
            num_ckpt_keep: 3,
            seed: 0,
        }
    }
}

/// AdamW with a OneCycle schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimSpec {
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Share of the steps that warm up.
    pub pct_start: f64,
}

impl Default for OptimSpec {
    fn default() -> Self {
        Self { lr: 1e-6, weight_decay: 0.1, pct_start: 0.1 }
    }
}

/// Low-rank adapters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSpec {
    /// 1 to 256.
    pub rank: u32,
    /// Constant factor of the adapter's output.
    pub scaling: f64,
    /// Leave the depformer without adapters.
    pub skip_depformer: bool,
}

impl Default for LoraSpec {
    fn default() -> Self {
        Self { rank: 64, scaling: 2.0, skip_depformer: true }
    }
}

/// One field of a specification that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// RFC 6901 pointer below the specification, e.g. `/optim/lr`.
    pub pointer: String,
    /// What was expected and what was found.
    pub detail: String,
}

impl TrainingSpec {
    /// Every field out of its range (finetune.md 10).
    #[must_use]
    pub fn faults(&self) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let mut check = |pointer: &str, value: f64, low: f64, high: f64| {
            if !(low..=high).contains(&value) {
                faults.push(FieldFault {
                    pointer: pointer.into(),
                    detail: format!("must be between {low} and {high}, not {value}"),
                });
            }
        };
        check("/max_steps", f64::from(self.max_steps), 1.0, 1e6);
        check("/batch_size", f64::from(self.batch_size), 1.0, 512.0);
        check("/num_microbatches", f64::from(self.num_microbatches), 1.0, 1024.0);
        check("/duration_sec", self.duration_sec, 10.0, 240.0);
        check("/optim/lr", self.optim.lr, 1e-8, 1.0);
        check("/optim/weight_decay", self.optim.weight_decay, 0.0, 1.0);
        check("/optim/pct_start", self.optim.pct_start, 0.0, 0.99);
        check("/lora/rank", f64::from(self.lora.rank), 1.0, 256.0);
        check("/lora/scaling", self.lora.scaling, 1e-3, 1e3);
        check("/max_norm", self.max_norm, 1e-6, 1e6);
        check("/text_padding_weight", self.text_padding_weight, 0.0, 1.0);
        check("/first_codebook_weight_multiplier", self.first_codebook_weight_multiplier, 1.0, 1000.0);
        check("/text_loss_weight", self.text_loss_weight, 0.0, 1e3);
        check("/audio_loss_weight", self.audio_loss_weight, 0.0, 1e3);
        check("/lora_l2_weight", self.lora_l2_weight, 0.0, 1.0);
        check("/num_ckpt_keep", f64::from(self.num_ckpt_keep), 1.0, 1e4);
        faults
    }
}

/// One measured number of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MetricPoint {
    /// Optimizer update, 0 = before the first.
    pub step: u32,
    /// Name, e.g. `train/loss`.
    pub name: String,
    /// Value.
    pub value: f64,
}
