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

    /// Sum of the levels' centroids, projected back. Codes `[B, K, T]`, from stream `first` on.
    fn decode(&self, codes: &Tensor, first: i64) -> Tensor {
        let parts = self.levels.iter().enumerate().map(|(i, l)| l.lookup(&codes.select(1, first + i as i64)));
        self.output.forward(&parts.reduce(|a, b| a + b).expect("at least one level"))
    }
}

impl SplitQuantizer {
    /// Only the active levels of the file are kept.
    pub(super) fn load(file: &Checkpoint, c: &MimiConfig) -> Result<Self, PersonaplexError> {
        Ok(Self {
            first: Branch::load(file, "rvq_first", 1)?,
            rest: Branch::load(file, "rvq_rest", c.active_codebooks - 1)?,
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

    /// `[B, K, T] -> [B, C, T]`.
    pub(super) fn decode(&self, codes: &Tensor) -> Tensor {
        (self.first.decode(codes, 0) + self.rest.decode(codes, 1)).transpose(1, 2)
    }
}
