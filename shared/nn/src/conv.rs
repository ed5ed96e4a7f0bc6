use tch::Tensor;

/// What stands before the first sample of a causal convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    Zeros,
    /// The first sample repeated.
    Replicate,
}

/// A causal 1-d convolution. A whole signal is one step from a fresh state.
#[derive(Debug)]
pub struct CausalConv {
    weight: Tensor,
    bias: Option<Tensor>,
    stride: i64,
    dilation: i64,
    padding: Padding,
}

/// The last `k_eff - stride` input samples, `[B, C, n]`; empty before the first sample.
#[derive(Debug)]
pub struct ConvState(Option<Tensor>);

impl ConvState {
    pub fn new() -> Self {
        Self(None)
    }

    /// A copy that shares nothing with this one.
    pub fn duplicate(&self) -> Self {
        Self(self.0.as_ref().map(Tensor::copy))
    }
}

impl Default for ConvState {
    fn default() -> Self {
        Self::new()
    }
}

impl CausalConv {
    /// `weight [out, in, k]`, `bias [out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, stride: i64, dilation: i64, padding: Padding) -> Self {
        Self { weight, bias, stride, dilation, padding }
    }

    /// `[B, in, T] -> [B, out, T / stride]`; T must be a multiple of the stride.
    pub fn step(&self, state: &mut ConvState, x: &Tensor) -> Tensor {
        let (batch, channels, t) = x.size3().expect("batch, channels, time");
        assert!(t > 0 && t % self.stride == 0, "{t} samples do not fit stride {}", self.stride);
        let kernel = (self.weight.size()[2] - 1) * self.dilation + 1;
        let history = kernel - self.stride;
        let joined = if history == 0 {
            x.shallow_clone()
        } else {
            let before = state.0.take().unwrap_or_else(|| match self.padding {
                Padding::Zeros => Tensor::zeros([batch, channels, history], (x.kind(), x.device())),
                Padding::Replicate => x.narrow(2, 0, 1).expand([batch, channels, history], false),
            });
            Tensor::cat(&[before, x.shallow_clone()], 2)
        };
        if history > 0 {
            let length = joined.size()[2];
            // A copy, so that the state does not keep the whole chunk alive.
            state.0 = Some(joined.narrow(2, length - history, history).copy());
        }
        joined.conv1d(&self.weight, self.bias.as_ref(), self.stride, 0, self.dilation, 1)
    }
}

/// A causal transposed 1-d convolution; what reaches beyond a chunk is kept and added to the next.
#[derive(Debug)]
pub struct CausalConvTr {
    weight: Tensor,
    bias: Option<Tensor>,
    stride: i64,
    groups: i64,
}

/// The last `k - stride` output samples without bias, `[B, C, n]`.
#[derive(Debug)]
pub struct ConvTrState(Option<Tensor>);

impl ConvTrState {
    pub fn new() -> Self {
        Self(None)
    }

    /// A copy that shares nothing with this one.
    pub fn duplicate(&self) -> Self {
        Self(self.0.as_ref().map(Tensor::copy))
    }
}

impl Default for ConvTrState {
    fn default() -> Self {
        Self::new()
    }
}

impl CausalConvTr {
    /// `weight [in, out / groups, k]`, `bias [out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, stride: i64, groups: i64) -> Self {
        Self { weight, bias: bias.map(|b| b.view([1, -1, 1])), stride, groups }
    }

    /// `[B, in, T] -> [B, out, T * stride]`.
    pub fn step(&self, state: &mut ConvTrState, x: &Tensor) -> Tensor {
        let t = x.size()[2];
        let overlap = self.weight.size()[2] - self.stride;
        let full = x.conv_transpose1d(&self.weight, None::<&Tensor>, self.stride, 0, 0, self.groups, 1);
        if overlap > 0 {
            if let Some(tail) = state.0.take() {
                let mut head = full.narrow(2, 0, overlap);
                let _ = head.g_add_(&tail);
            }
            state.0 = Some(full.narrow(2, t * self.stride, overlap).copy());
        }
        let y = full.narrow(2, 0, t * self.stride);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
