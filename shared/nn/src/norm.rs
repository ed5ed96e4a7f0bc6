use tch::{Kind, Tensor};

/// Root-mean-square norm computed in f32, its scale multiplied inside f32, then rounded once to the input's kind.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[width]`, f32.
    alpha: Tensor,
    /// As given, which is the kind of the model.
    given: Tensor,
    eps: f64,
}

impl RmsNorm {
    /// `alpha` in any shape of `width` elements (files store `[1, 1, width]`).
    pub fn new(alpha: &Tensor, eps: f64) -> Self {
        let given = alpha.view(-1);
        Self { alpha: given.to_kind(Kind::Float), given, eps }
    }

    /// The scale `[width]` in the kind it was given in. It is the tensor used, not a copy: it may be trained.
    pub fn scale(&self) -> &Tensor {
        &self.given
    }

    /// What is added to the mean square.
    pub const fn eps(&self) -> f64 {
        self.eps
    }

    /// The scale in f32. A trained one changes, so it is widened anew and hands its gradient back.
    fn wide(&self) -> Tensor {
        if self.given.requires_grad() { self.given.to_kind(Kind::Float) } else { self.alpha.shallow_clone() }
    }

    /// `[.., width] -> [.., width]` in the input's kind.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_as(x, x.kind())
    }

    /// As [`RmsNorm::forward`], rounded to another kind.
    pub fn forward_as(&self, x: &Tensor, kind: Kind) -> Tensor {
        if x.device().is_cuda() {
            // One kernel instead of eight. It multiplies in another order: one bf16 element in 100,000 is an ulp apart.
            let alpha = if x.kind() == Kind::Float { self.wide() } else { self.given.shallow_clone() };
            return x.rms_norm(alpha.size(), Some(&alpha), self.eps).to_kind(kind);
        }
        let wide = x.to_kind(Kind::Float);
        let mean = (&wide * &wide).mean_dim(-1, true, Kind::Float);
        let scale = self.wide() * (mean + self.eps).rsqrt();
        (wide * scale).to_kind(kind)
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
