use serde::{Deserialize, Serialize};

use crate::WeightsError;

/// Sizes of the Mimi codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MimiConfig {
    /// Hz.
    pub sample_rate: i64,
    /// Frames per second.
    pub frame_rate: f64,
    /// Codebooks used of those in the file (first semantic, rest acoustic).
    pub active_codebooks: i64,
    pub seanet: SeanetConfig,
    pub transformer: MimiTransformerConfig,
    pub quantizer: QuantizerConfig,
}

/// Convolutional encoder and decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeanetConfig {
    /// Channels of the latent.
    pub dimension: i64,
    /// Channels after the first convolution.
    pub n_filters: i64,
    /// Strides in the decoder's order; the encoder uses them reversed.
    pub ratios: Vec<i64>,
    /// Residual blocks narrow their channels by this factor.
    pub compress: i64,
    pub kernel_size: i64,
    pub residual_kernel_size: i64,
    pub last_kernel_size: i64,
}

/// The transformers on the 25 Hz side of the codec (one in the encoder, one in the decoder).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MimiTransformerConfig {
    pub d_model: i64,
    pub num_heads: i64,
    pub num_layers: i64,
    /// Attention window in steps of 25 Hz.
    pub context: i64,
    pub max_period: f64,
    pub dim_feedforward: i64,
}

/// The split residual quantizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuantizerConfig {
    /// Width of a centroid.
    pub dimension: i64,
    /// Levels in the file: one semantic, the rest acoustic.
    pub n_q: i64,
    /// Centroids per level.
    pub bins: i64,
}

impl MimiConfig {
    /// Samples per step of the convolutional encoder (960 in the published codec).
    pub fn hop(&self) -> i64 {
        self.seanet.ratios.iter().product()
    }

    /// Stride of the downsampling convolution between encoder steps and frames.
    pub fn downsample(&self) -> i64 {
        self.frame_size() / self.hop()
    }

    /// Samples per frame (1,920 at 24 kHz and 12.5 Hz).
    pub fn frame_size(&self) -> i64 {
        (self.sample_rate as f64 / self.frame_rate).round() as i64
    }

    /// Checks that the sizes fit together.
    pub fn validate(&self) -> Result<(), WeightsError> {
        let bad = |detail: String| Err(WeightsError::InvalidConfig { detail });
        let (s, t, q) = (&self.seanet, &self.transformer, &self.quantizer);
        let sizes = [
            ("sample_rate", self.sample_rate),
            ("active_codebooks", self.active_codebooks),
            ("seanet.n_filters", s.n_filters),
            ("seanet.kernel_size", s.kernel_size),
            ("seanet.residual_kernel_size", s.residual_kernel_size),
            ("seanet.last_kernel_size", s.last_kernel_size),
            ("transformer.num_layers", t.num_layers),
            ("transformer.context", t.context),
            ("transformer.dim_feedforward", t.dim_feedforward),
            ("quantizer.dimension", q.dimension),
            ("quantizer.bins", q.bins),
        ];
        if let Some((key, value)) = sizes.iter().find(|(_, v)| *v < 1) {
            return bad(format!("mimi {key} is {value}"));
        }
        if self.frame_rate <= 0.0 || s.ratios.is_empty() || s.ratios.iter().any(|r| *r < 1) {
            return bad(format!("mimi frame rate {} or ratios {:?}", self.frame_rate, s.ratios));
        }
        if self.downsample() < 1 || self.downsample() * self.hop() != self.frame_size() {
            return bad(format!("mimi hop {} does not divide a frame of {}", self.hop(), self.frame_size()));
        }
        // The inner width of a residual block is rounded down, as in the published package.
        if s.compress < 1 || s.n_filters < s.compress {
            return bad(format!("mimi compress {} leaves nothing of {} filters", s.compress, s.n_filters));
        }
        if s.dimension != t.d_model || t.num_heads < 1 || t.d_model % (2 * t.num_heads) != 0 {
            return bad(format!("mimi d_model {} with {} heads", t.d_model, t.num_heads));
        }
        if q.n_q < self.active_codebooks {
            return bad(format!("mimi n_q {} is below active_codebooks {}", q.n_q, self.active_codebooks));
        }
        Ok(())
    }
}
