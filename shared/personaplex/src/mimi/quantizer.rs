use nn::{Checkpoint, Linear};
use tch::{Kind, Tensor};
use weights::MimiConfig;

use crate::PersonaplexError;

/// Smallest usage count a centroid is divided by.
const USAGE_FLOOR: f64 = 1e-5;

struct Level {
    /// `[bins, D]`.
    centroids: Tensor,
    /// Squared norms, `[bins]`.
    norms: Tensor,
}

/// One residual quantizer with its own projections.
struct Branch {
    input: Linear,
    output: Linear,
    levels: Vec<Level>,
}

/// Semantic and acoustic quantizers on the same latent.
pub(super) struct SplitQuantizer {
    first: Branch,
    rest: Branch,
    bins: i64,
}

impl Level {
    fn load(file: &Checkpoint, name: &str) -> Result<Self, PersonaplexError> {
        let usage = file.get(&format!("{name}._codebook.cluster_usage"))?.clamp_min(USAGE_FLOOR);
        let centroids = file.get(&format!("{name}._codebook.embedding_sum"))? / usage.unsqueeze(1);
        let norms = (&centroids * &centroids).sum_dim_intlist(-1, false, Kind::Float);
        Ok(Self { centroids, norms })
    }

    /// Nearest centroid of every row: `[B, T, D] -> [B, T]`.
    fn nearest(&self, x: &Tensor) -> Tensor {
        (&self.norms - x.matmul(&self.centroids.transpose(0, 1)) * 2.0).argmin(-1, false)
    }

    fn lookup(&self, codes: &Tensor) -> Tensor {
        Tensor::embedding(&self.centroids, codes, -1, false, false)
    }
}

impl Branch {
    fn load(file: &Checkpoint, name: &str, levels: i64) -> Result<Self, PersonaplexError> {
        let proj = |which: &str| -> Result<Linear, nn::NnError> {
            Ok(Linear::new(file.get(&format!("quantizer.{name}.{which}_proj.weight"))?.squeeze_dim(-1)))
        };
        let level = |l| Level::load(file, &format!("quantizer.{name}.vq.layers.{l}"));
        Ok(Self {
            input: proj("input")?,
            output: proj("output")?,
            levels: (0..levels).map(level).collect::<Result<_, _>>()?,
        })
    }

    fn encode(&self, x: &Tensor, codes: &mut Vec<Tensor>) {
        let mut residual = self.input.forward(x);
        for level in &self.levels {
            let code = level.nearest(&residual);
            residual -= level.lookup(&code);
            codes.push(code);
        }
    }

    /// Sum of the levels' centroids, projected back: codes `[B, K, T]` with 0 to all levels; none for no codes.
    fn decode(&self, codes: &Tensor) -> Option<Tensor> {
        let levels = (0..codes.size()[1]).zip(&self.levels);
        let sum = levels.map(|(i, level)| level.lookup(&codes.select(1, i))).reduce(|a, b| a + b)?;
        Some(self.output.forward(&sum))
    }
}

impl SplitQuantizer {
    /// Only the active levels of the file are kept.
    pub(super) fn load(file: &Checkpoint, c: &MimiConfig) -> Result<Self, PersonaplexError> {
        Ok(Self {
            first: Branch::load(file, "rvq_first", 1)?,
            rest: Branch::load(file, "rvq_rest", c.active_codebooks - 1)?,
            bins: c.quantizer.bins,
        })
    }

    /// `[B, C, T] -> [B, K, T]` i64: semantic first.
    pub(super) fn encode(&self, latent: &Tensor) -> Tensor {
        let x = latent.transpose(1, 2);
        let mut codes = Vec::new();
        self.first.encode(&x, &mut codes);
        self.rest.encode(&x, &mut codes);
        Tensor::stack(&codes, 1)
    }

    /// `[B, K, T] -> [B, C, T]` of the first K levels, K at least 1. Ids outside the codebook count as the nearest one
    /// inside: on a GPU a lookup out of range would end the process's use of the device.
    pub(super) fn decode(&self, codes: &Tensor) -> Tensor {
        let codes = codes.clamp(0, self.bins - 1);
        let first = self.first.decode(&codes.narrow(1, 0, 1)).expect("the semantic level is always there");
        let rest = self.rest.decode(&codes.narrow(1, 1, codes.size()[1] - 1));
        let sum = match rest {
            Some(rest) => first + rest,
            None => first,
        };
        sum.transpose(1, 2)
    }
}
