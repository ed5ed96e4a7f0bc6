//! Trainings: what to train with (the keys of finetune.md 10), what is wrong with it, what is measured.

mod choices;
mod defaults;
mod faults;
mod parts;
mod resume;

use serde::{Deserialize, Serialize};

pub use choices::{CarryContext, FloatType, LossNorm, Overflow, Schedule, SemanticStreams, SpliceMode};
pub use faults::FieldFault;
pub use parts::{
    AlarmSpec, DataSpec, InterleaverSpec, LoraSpec, OptimSpec, ProbeSpec, PuppeteerSpec, SystemPromptSpec,
};

use crate::CheckpointId;

/// What to train with. Every field has a default; unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingSpec {
    /// Optimizer updates.
    pub max_steps: u32,
    /// Passes over the training windows; when given it decides the number of updates instead of `max_steps`.
    pub epochs: Option<f64>,
    /// Windows per micro-batch (and process).
    pub batch_size: u32,
    /// Micro-batches per update.
    pub num_microbatches: u32,
    /// Seconds of a window, prompt included.
    pub duration_sec: f64,
    /// Which windows, in which order.
    pub data: DataSpec,
    /// Optimizer.
    pub optim: OptimSpec,
    /// Adapters.
    pub lora: LoraSpec,
    /// Train every weight instead of adapters; `lora.enable` must then be false.
    pub full_finetuning: bool,
    /// Global gradient norm limit.
    pub max_norm: f64,
    /// Weight of PAD (and EPAD) targets in the text loss.
    pub text_padding_weight: f64,
    /// Weight of EPAD targets, the cue that a word starts; as `text_padding_weight` when absent.
    pub epad_weight: Option<f64>,
    /// Weight of the semantic codebooks.
    pub first_codebook_weight_multiplier: f64,
    /// Whose semantic codebooks.
    pub semantic_streams: SemanticStreams,
    /// Weight of the text loss.
    pub text_loss_weight: f64,
    /// Weight of the audio loss.
    pub audio_loss_weight: f64,
    /// Weight of the user's codebooks inside the audio loss.
    pub user_audio_weight: f64,
    /// What weighted sums are divided by.
    pub loss_norm: LossNorm,
    /// L2 on `lora_B`.
    pub lora_l2_weight: f64,
    /// Share of `lora_B` taken away at every update, whatever the learning rate.
    pub lora_b_decay: f64,
    /// Weight of the divergence of the text distribution from that of the base.
    pub kl_base_weight: f64,
    /// Uniform noise on the input vectors, +-alpha / sqrt(frames * width).
    pub neftune_alpha: f64,
    /// Prompt before every window.
    pub system_prompt: SystemPromptSpec,
    /// How context enters a window.
    pub puppeteer: PuppeteerSpec,
    /// How words become the text stream.
    pub interleaver: InterleaverSpec,
    /// Type of the frozen weights and of the arithmetic; bfloat16 on a GPU and float32 on a CPU when absent.
    pub param_dtype: Option<FloatType>,
    /// Type in which gradients of micro-batches are added up; bfloat16 repeats the published trainer.
    pub grad_accum_dtype: FloatType,
    /// Compute inner values of layers a second time instead of keeping them.
    pub gradient_checkpointing: bool,
    /// Temporal layers, from the first on, to which that applies; all when absent.
    pub recompute_layers: Option<u32>,
    /// Keep the frozen layers in host memory and bring each when it is used: for small cards. Needs
    /// `gradient_checkpointing` of all layers.
    pub offload_frozen: bool,
    /// Split the frozen layers over the processes of the run: for cards that do not hold them. Needs
    /// `gradient_checkpointing` of all layers; a run of one process keeps them whole.
    pub shard_frozen: bool,
    /// Frames that the heads see at a time.
    pub sliced_heads_frames: u32,
    /// Evaluate at all.
    pub do_eval: bool,
    /// Steps between evaluations; 0 = only at the start and the end.
    pub eval_freq: u32,
    /// Windows of an evaluation.
    pub eval_max_windows: u32,
    /// Free-running generation at every evaluation.
    pub probe: ProbeSpec,
    /// What counts as a training gone wrong.
    pub alarms: AlarmSpec,
    /// Save checkpoints at all while training; the last adapter is always kept.
    pub do_ckpt: bool,
    /// Steps between checkpoints; 0 = only at the end.
    pub ckpt_freq: u32,
    /// Checkpoints to keep; all when null. The best one and the one a run goes on from are never removed.
    pub num_ckpt_keep: Option<u32>,
    /// Evaluation metric that decides which checkpoint is the best.
    pub best_metric: String,
    /// Checkpoint of an earlier run to go on from.
    pub resume_from: Option<CheckpointId>,
    /// Take only the weights of `resume_from`: a new run from step 0.
    pub force_warm_restart: bool,
    /// Plan the learning rate anew over the steps that are left: needed to go on beyond the steps first planned.
    pub schedule_restart: bool,
    /// Steps between lines of the process's log.
    pub log_freq: u32,
    /// Seed of adapters and data order.
    pub seed: u64,
}

/// Whether a higher value of a metric is the better one; of losses, repeats and silence it is not.
#[must_use]
pub fn more_is_better(metric: &str) -> bool {
    ["recall", "distinct"].iter().any(|part| metric.contains(part))
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
