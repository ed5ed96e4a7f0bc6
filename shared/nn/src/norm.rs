use tch::{Kind, Tensor};

/// Root-mean-square norm computed in f32, its scale multiplied inside f32, then rounded once to the input's kind.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[width]`, f32.
    alpha: Tensor,
    eps: f64,
}

impl RmsNorm {
    /// `alpha` in any shape of `width` elements (files store `[1, 1, width]`).
    pub fn new(alpha: &Tensor, eps: f64) -> Self {
        Self { alpha: alpha.to_kind(Kind::Float).view(-1), eps }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let wide = x.to_kind(Kind::Float);
        let mean = (&wide * &wide).mean_dim(-1, true, Kind::Float);
        let scale = &self.alpha * (mean + self.eps).rsqrt();
        (wide * scale).to_kind(x.kind())
    }
}

/// Layer norm with scale and bias over the last dimension.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        Self { weight, bias, eps }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.eps, true)
    }
}
