use tch::{Kind, Tensor};

/// Low-rank update of a linear: `y = W x + scaling * B (A x)`. The tensors are the trainable ones themselves; whoever
/// trains them updates them in place.
#[derive(Debug)]
pub struct LoraPair {
    /// `[rank, in]`, or `[S, rank, in]` for a per-step linear.
    pub a: Tensor,
    /// `[out, rank]`, or `[S, out, rank]` for a per-step linear.
    pub b: Tensor,
    pub scaling: f64,
}

/// A linear without bias, weight `[out, in]`.
#[derive(Debug)]
pub struct Linear {
    pub weight: Tensor,
    pub lora: Option<LoraPair>,
}

impl Linear {
    pub fn new(weight: Tensor) -> Self {
        Self { weight, lora: None }
    }

    /// `[.., in] -> [.., out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let y = x.linear(&self.weight, None::<&Tensor>);
        match &self.lora {
            None => y,
            Some(p) => y + x.linear(&p.a, None::<&Tensor>).linear(&p.b, None::<&Tensor>) * p.scaling,
        }
    }
}

/// One linear per depformer step, weights `[S, out, in]`: training does all steps as one batched product, serving takes
/// one step at a time.
#[derive(Debug)]
pub struct StepLinear {
    pub weight: Tensor,
    pub lora: Option<LoraPair>,
}

impl StepLinear {
    pub fn new(weight: Tensor) -> Self {
        Self { weight, lora: None }
    }

    /// Every step on its own rows: `[S, N, in] -> [S, N, out]`. The operands are contiguous per step; a strided layout
    /// makes one product per row out of this (performance.md).
    pub fn forward_all(&self, x: &Tensor) -> Tensor {
        let y = x.bmm(&self.weight.transpose(1, 2));
        match &self.lora {
            None => y,
            Some(p) => y + x.bmm(&p.a.transpose(1, 2)).bmm(&p.b.transpose(1, 2)) * p.scaling,
        }
    }

    /// Every step on the same rows: `[N, in] -> [S, N, out]`.
    pub fn forward_shared(&self, x: &Tensor) -> Tensor {
        let steps = self.weight.size()[0];
        let (n, width) = x.size2().expect("rows by width");
        self.forward_all(&x.unsqueeze(0).expand([steps, n, width], false))
    }

    /// One step: `[.., in] -> [.., out]`.
    pub fn forward_step(&self, step: i64, x: &Tensor) -> Tensor {
        let y = x.linear(&self.weight.select(0, step), None::<&Tensor>);
        match &self.lora {
            None => y,
            Some(p) => {
                let low = x.linear(&p.a.select(0, step), None::<&Tensor>);
                y + low.linear(&p.b.select(0, step), None::<&Tensor>) * p.scaling
            }
        }
    }
}

impl LoraPair {
    /// The update as a matrix in f32, shaped as the weight it belongs to: `scaling * B A`.
    pub fn delta(&self) -> Tensor {
        self.b.to_kind(Kind::Float).matmul(&self.a.to_kind(Kind::Float)) * self.scaling
    }
}
