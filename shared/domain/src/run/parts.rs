use serde::{Deserialize, Serialize};

use super::choices::{CarryContext, Overflow, Schedule, SpliceMode};

/// Which windows, in which order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataSpec {
    /// A new order in every epoch; false keeps the order of the manifest.
    pub shuffle: bool,
    /// Label of the agent's words in the sidecars.
    pub main_speaker_label: String,
}

/// AdamW and its schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimSpec {
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Decay rates of the moments; OneCycle with `cycle_momentum` moves the first between 0.85 and 0.95 instead.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Share of the steps that warm up.
    pub pct_start: f64,
    /// Shape of the learning rate.
    pub schedule: Schedule,
    /// Move the first beta against the learning rate (OneCycle).
    pub cycle_momentum: bool,
}

/// Low-rank adapters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSpec {
    /// Train adapters.
    pub enable: bool,
    /// 1 to 256.
    pub rank: u32,
    /// Constant factor of the adapter's output.
    pub scaling: f64,
    /// Leave the depformer without adapters.
    pub skip_depformer: bool,
    /// Train the embedding tables too.
    pub ft_embed: bool,
    /// Divide `scaling` by the root of the rank.
    pub rslora: bool,
}

impl LoraSpec {
    /// Factor of the adapter's output.
    #[must_use]
    pub fn factor(&self) -> f64 {
        if self.rslora { self.scaling / f64::from(self.rank.max(1)).sqrt() } else { self.scaling }
    }
}

/// Prompt before every window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SystemPromptSpec {
    /// Put voice and brief before every window.
    pub enable: bool,
    /// Frames of each of the two silences; must equal serving.
    pub audio_silence_frames: u32,
    /// Longest prompt.
    pub max_frames: u32,
}

/// How context enters a window, and how windows are cut around it. Frames of 80 ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PuppeteerSpec {
    /// Put context in; false trains on the bare dialogue.
    pub enable: bool,
    /// Longest context, tags included.
    pub max_tokens_per_injection: u32,
    /// How it is put in.
    pub splice_mode: SpliceMode,
    /// Frames kept free before the agent's next word.
    pub guard: u32,
    /// Frames a context needs after it in its window.
    pub min_post: u32,
    /// How far a cut may move back to avoid a word.
    pub lookback: u32,
    /// Smallest window.
    pub min_window: u32,
    /// What later windows know.
    pub carry_context: CarryContext,
    /// How often a dialogue's first window is drawn in relation to the others.
    pub first_window_weight: f64,
}

/// How words become the text stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterleaverSpec {
    /// Leave out the user's words.
    pub keep_main_only: bool,
    /// Mark changes of speaker.
    pub use_bos_eos: bool,
    /// Seconds by which text is earlier than audio.
    pub audio_delay: f64,
    /// Tokens still unspoken when the next word starts.
    pub overflow: Overflow,
}

/// Free-running generation at every evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeSpec {
    /// Do it.
    pub enable: bool,
    /// Eval dialogues whose beginning is played.
    pub prompts: u32,
    /// Seconds of each.
    pub seconds: f64,
    /// Temperature of text.
    pub temp_text: f64,
    /// Temperature of audio.
    pub temp_audio: f64,
}

/// What counts as a training gone wrong. Each alarm is told once; with `auto_stop` it ends the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlarmSpec {
    /// Save and end the run at the first alarm.
    pub auto_stop: bool,
    /// Steps over which training numbers are averaged.
    pub window: u32,
    /// Share of frames where padding is predicted, percent, above which the model has fallen silent.
    pub pred_pad_pct: f64,
    /// Share of generated words inside repeated passages, above which the model loops.
    pub repeat_ratio: f64,
    /// Mean loss in relation to the lowest mean so far, above which the learning rate is too high.
    pub loss_ratio: f64,
}
