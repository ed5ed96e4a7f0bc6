use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{MimiConfig, WeightsError};

/// Everything a model directory says about itself (`config.json`), and the form of the presets in `configs/model/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Preset the directory was made from, or a free name.
    pub name: String,
    /// The 17-stream language model.
    pub lm: LmConfig,
    /// The codec.
    pub mimi: MimiConfig,
    /// Agent audio codes that stand for silence, one per codebook.
    pub silence_codes: [i32; 8],
    /// User audio codes of the 440 Hz tone that marks prompt frames.
    pub sine_codes: [i32; 8],
    /// File name of the SentencePiece model inside the directory.
    pub tokenizer: String,
}

/// Sizes of the language model; keys are the reference constructor's (personaplex `LMModel`), so this object can be
/// handed to it. Keys with a single supported value are kept for that reason and checked by [`LmConfig::validate`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmConfig {
    pub dim: i64,
    pub num_heads: i64,
    pub num_layers: i64,
    /// Nominal feed-forward width as a multiple of `dim`; see [`LmConfig::hidden`].
    pub hidden_scale: f64,
    /// Attention window in rows, self included.
    pub context: i64,
    /// Rotary base.
    pub max_period: f64,
    /// Audio streams fed to the model (agent 8 + user 8).
    pub n_q: i64,
    /// Audio streams the depformer predicts: 16 in PersonaPlex, 8 (the agent's) in Moshi.
    pub dep_q: i64,
    /// Audio vocabulary without the initial id.
    pub card: i64,
    /// Text vocabulary without the initial id.
    pub text_card: i64,
    pub existing_text_padding_id: i32,
    /// Frames by which each of the 17 streams is delayed.
    pub delays: Vec<i64>,
    pub depformer_dim: i64,
    pub depformer_num_heads: i64,
    pub depformer_num_layers: i64,
    /// Nominal feed-forward width of the depformer.
    pub depformer_dim_feedforward: i64,
    #[serde(default = "yes")]
    pub causal: bool,
    #[serde(default)]
    pub layer_scale: Option<f64>,
    #[serde(default = "silu")]
    pub gating: String,
    #[serde(default = "rms_norm_f32")]
    pub norm: String,
    #[serde(default = "rope")]
    pub positional_embedding: String,
    #[serde(default = "yes")]
    pub depformer_multi_linear: bool,
    #[serde(default = "yes")]
    pub depformer_weights_per_step: bool,
    #[serde(default = "yes")]
    pub depformer_causal: bool,
    /// Dead key of the reference: the depformer always sees all earlier steps of its frame.
    #[serde(default, skip_serializing)]
    pub depformer_context: Option<i64>,
    #[serde(default, skip_serializing)]
    pub depformer_max_period: Option<f64>,
    #[serde(default)]
    pub depformer_layer_scale: Option<f64>,
    #[serde(default = "silu")]
    pub depformer_gating: String,
    #[serde(default = "none")]
    pub depformer_pos_emb: String,
}

fn yes() -> bool {
    true
}
fn silu() -> String {
    "silu".into()
}
fn rms_norm_f32() -> String {
    "rms_norm_f32".into()
}
fn rope() -> String {
    "rope".into()
}
fn none() -> String {
    "none".into()
}

/// Width of a gated feed-forward for a nominal width: two thirds, and 21/8 of `dim` when nominal is four times `dim`.
fn gated_hidden(nominal: i64, dim: i64) -> i64 {
    if nominal == 4 * dim { 21 * dim / 8 } else { 2 * nominal / 3 }
}

impl LmConfig {
    /// Inner width of the temporal transformer's gate.
    pub fn hidden(&self) -> i64 {
        gated_hidden((self.hidden_scale * self.dim as f64) as i64, self.dim)
    }

    /// Inner width of the depformer's gate.
    pub fn depformer_hidden(&self) -> i64 {
        gated_hidden(self.depformer_dim_feedforward, self.depformer_dim)
    }

    /// Number of streams: text and all audio codebooks.
    pub fn streams(&self) -> usize {
        1 + self.n_q as usize
    }

    /// Id of the text stream before its first frame.
    pub fn initial_text(&self) -> i32 {
        self.text_card as i32
    }

    /// Id of an audio stream before its first frame.
    pub fn initial_audio(&self) -> i32 {
        self.card as i32
    }

    /// Largest delay in frames.
    pub fn max_delay(&self) -> usize {
        self.delays.iter().copied().max().unwrap_or(0) as usize
    }

    /// Checks that the sizes fit together and that every fixed key has the value this code implements.
    pub fn validate(&self) -> Result<(), WeightsError> {
        let bad = |detail: String| Err(WeightsError::InvalidConfig { detail });
        let sizes = [
            ("dim", self.dim),
            ("num_heads", self.num_heads),
            ("num_layers", self.num_layers),
            ("context", self.context),
            ("card", self.card),
            ("text_card", self.text_card),
            ("depformer_dim", self.depformer_dim),
            ("depformer_num_heads", self.depformer_num_heads),
            ("depformer_num_layers", self.depformer_num_layers),
            ("depformer_dim_feedforward", self.depformer_dim_feedforward),
        ];
        if let Some((key, value)) = sizes.iter().find(|(_, v)| *v < 1) {
            return bad(format!("{key} is {value}"));
        }
        if self.n_q != 16 || ![8, 16].contains(&self.dep_q) {
            return bad(format!("n_q {} and dep_q {} are not 16 and 8 or 16", self.n_q, self.dep_q));
        }
        if self.delays.len() != 17 || self.delays.iter().any(|d| !(0..=4).contains(d)) || self.delays[0] != 0
        {
            return bad(format!("delays {:?} are not 17 values of 0..=4 starting with 0", self.delays));
        }
        if self.dim % (2 * self.num_heads) != 0 || self.depformer_dim % self.depformer_num_heads != 0 {
            return bad(format!("dim {} does not split into {} even heads", self.dim, self.num_heads));
        }
        if self.hidden() < 1 || self.depformer_hidden() < 1 {
            return bad(format!("hidden_scale {} gives no feed-forward width", self.hidden_scale));
        }
        let fixed = [
            ("gating", self.gating.as_str(), "silu"),
            ("norm", self.norm.as_str(), "rms_norm_f32"),
            ("positional_embedding", self.positional_embedding.as_str(), "rope"),
            ("depformer_gating", self.depformer_gating.as_str(), "silu"),
            ("depformer_pos_emb", self.depformer_pos_emb.as_str(), "none"),
        ];
        if let Some((key, value, only)) = fixed.iter().find(|(_, v, only)| v != only) {
            return bad(format!("{key} is {value:?}, only {only:?} is implemented"));
        }
        let switches = [
            self.causal,
            self.depformer_multi_linear,
            self.depformer_weights_per_step,
            self.depformer_causal,
        ];
        if switches.contains(&false) || self.layer_scale.is_some() || self.depformer_layer_scale.is_some() {
            return bad(
                "causal, multi-linear, per-step weights without layer scale is the only form implemented"
                    .into(),
            );
        }
        Ok(())
    }
}

impl ModelConfig {
    /// Reads and validates a `config.json`.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        let text = std::fs::read_to_string(path).map_err(WeightsError::io("read", path))?;
        Self::parse(&text, path)
    }

    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, WeightsError> {
        let config: Self = serde_json::from_str(text)
            .map_err(|source| WeightsError::Config { path: path.to_path_buf(), source })?;
        config.validate()?;
        Ok(config)
    }

    /// Checks both models and that the prompt constants are codes of this codec.
    pub fn validate(&self) -> Result<(), WeightsError> {
        self.lm.validate()?;
        self.mimi.validate()?;
        let bad = |detail: String| Err(WeightsError::InvalidConfig { detail });
        if self.lm.card != self.mimi.quantizer.bins {
            return bad(format!("lm card {} is not mimi bins {}", self.lm.card, self.mimi.quantizer.bins));
        }
        if self.mimi.active_codebooks != 8 {
            return bad(format!("active_codebooks is {}, the layout has 8", self.mimi.active_codebooks));
        }
        let codes = self.silence_codes.iter().chain(&self.sine_codes);
        if let Some(code) = codes.into_iter().find(|&&c| !(0..self.lm.card as i32).contains(&c)) {
            return bad(format!("prompt code {code} is outside 0..{}", self.lm.card));
        }
        if self.tokenizer.is_empty()
            || self.tokenizer.contains(['/', '\\'])
            || self.tokenizer.starts_with('.')
        {
            return bad(format!("tokenizer {:?} is not a plain file name", self.tokenizer));
        }
        Ok(())
    }
}
