use tch::{Kind, Tensor};

/// What stands before the first sample of a causal convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    Zeros,
    /// The first sample repeated.
    Replicate,
}

/// A causal 1-d convolution over a batch of slots. A whole signal is one step from a fresh state.
#[derive(Debug)]
pub struct CausalConv {
    weight: Tensor,
    bias: Option<Tensor>,
    stride: i64,
    dilation: i64,
    padding: Padding,
}

/// The last `k_eff - stride` input samples of every slot. Fixed tensors that a step updates in place, so that a captured
/// graph finds them again.
#[derive(Debug)]
pub struct ConvState {
    /// `[B, in, n]`.
    history: Tensor,
    /// `[B, 1, 1]`, true for slots that have seen nothing yet; only where the padding depends on the first sample.
    fresh: Option<Tensor>,
}

impl ConvState {
    /// Returns a slot to how a fresh state starts.
    pub fn reset(&mut self, slot: i64) {
        let _ = self.history.select(0, slot).zero_();
        if let Some(fresh) = &self.fresh {
            let _ = fresh.select(0, slot).fill_(1);
        }
    }

    /// Copies of what a slot remembers: the history `[in, n]`, then the flag if there is one.
    pub fn slot(&self, slot: i64) -> Vec<Tensor> {
        [Some(&self.history), self.fresh.as_ref()]
            .into_iter()
            .flatten()
            .map(|x| x.select(0, slot).copy())
            .collect()
    }
}

impl CausalConv {
    /// `weight [out, in, k]`, `bias [out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, stride: i64, dilation: i64, padding: Padding) -> Self {
        Self { weight, bias, stride, dilation, padding }
    }

    /// Samples kept between steps.
    fn history(&self) -> i64 {
        let history = (self.weight.size()[2] - 1) * self.dilation + 1 - self.stride;
        assert!(history >= 0, "stride {} skips samples of kernel {:?}", self.stride, self.weight.size());
        history
    }

    /// The state of `batch` slots that have seen nothing.
    #[must_use]
    pub fn state(&self, batch: i64) -> ConvState {
        let size = [batch, self.weight.size()[1], self.history()];
        let device = self.weight.device();
        ConvState {
            history: Tensor::zeros(size, (self.weight.kind(), device)),
            fresh: (self.padding == Padding::Replicate)
                .then(|| Tensor::ones([batch, 1, 1], (Kind::Bool, device))),
        }
    }

    /// `[B, in, T] -> [B, out, T / stride]`; T must be a multiple of the stride. Slots that are not `active` (`[B]` bool,
    /// none means all are) remember what they remembered; their output means nothing. Tensor code without branches on
    /// data: a CUDA graph can hold it.
    pub fn step(&self, state: &mut ConvState, x: &Tensor, active: Option<&Tensor>) -> Tensor {
        let (_, _, t) = x.size3().expect("batch, channels, time");
        assert!(t > 0 && t % self.stride == 0, "{t} samples do not fit stride {}", self.stride);
        let history = self.history();
        if history == 0 {
            return self.convolve(x);
        }
        let joined = match &mut state.fresh {
            None => Tensor::cat(&[&state.history, x], 2),
            Some(fresh) => {
                let first = x.narrow(2, 0, 1).expand_as(&state.history);
                let before = first.where_self(fresh, &state.history);
                let _ = match active {
                    None => fresh.fill_(0),
                    Some(active) => fresh.logical_and_(&active.logical_not().view([-1, 1, 1])),
                };
                Tensor::cat(&[&before, x], 2)
            }
        };
        keep(&mut state.history, &joined.narrow(2, t, history), active);
        self.convolve(&joined)
    }

    fn convolve(&self, x: &Tensor) -> Tensor {
        x.conv1d(&self.weight, self.bias.as_ref(), self.stride, 0, self.dilation, 1)
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

/// The last `k - stride` output samples of every slot without bias, `[B, out, n]`; updated in place.
#[derive(Debug)]
pub struct ConvTrState(Tensor);

impl ConvTrState {
    /// Returns a slot to how a fresh state starts.
    pub fn reset(&mut self, slot: i64) {
        let _ = self.0.select(0, slot).zero_();
    }

    /// A copy of what a slot remembers, `[out, n]`.
    pub fn slot(&self, slot: i64) -> Tensor {
        self.0.select(0, slot).copy()
    }
}

impl CausalConvTr {
    /// `weight [in, out / groups, k]`, `bias [out]`.
    pub fn new(weight: Tensor, bias: Option<Tensor>, stride: i64, groups: i64) -> Self {
        Self { weight, bias: bias.map(|b| b.view([1, -1, 1])), stride, groups }
    }

    /// Output samples of a step that belong to the next one.
    fn overlap(&self) -> i64 {
        let overlap = self.weight.size()[2] - self.stride;
        assert!(overlap >= 0, "stride {} leaves gaps in kernel {:?}", self.stride, self.weight.size());
        overlap
    }

    /// The state of `batch` slots that have seen nothing.
    #[must_use]
    pub fn state(&self, batch: i64) -> ConvTrState {
        let size = [batch, self.weight.size()[1] * self.groups, self.overlap()];
        ConvTrState(Tensor::zeros(size, (self.weight.kind(), self.weight.device())))
    }

    /// `[B, in, T] -> [B, out, T * stride]`; `active` as for [`CausalConv::step`].
    pub fn step(&self, state: &mut ConvTrState, x: &Tensor, active: Option<&Tensor>) -> Tensor {
        let (length, overlap) = (x.size()[2] * self.stride, self.overlap());
        let full = x.conv_transpose1d(&self.weight, None::<&Tensor>, self.stride, 0, 0, self.groups, 1);
        if overlap > 0 {
            let _ = full.narrow(2, 0, overlap).g_add_(&state.0);
            keep(&mut state.0, &full.narrow(2, length, overlap), active);
        }
        let y = full.narrow(2, 0, length);
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// Overwrites the rows of `kept` that belong to active slots; the others keep every bit.
fn keep(kept: &mut Tensor, new: &Tensor, active: Option<&Tensor>) {
    match active {
        None => kept.copy_(new),
        Some(active) => {
            let _ = new.where_self_out(kept, &active.view([-1, 1, 1]), kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    const DOUBLE: (Kind, Device) = (Kind::Double, Device::Cpu);

    fn close(found: &Tensor, wanted: &Tensor) -> bool {
        found.size() == wanted.size() && (found - wanted).abs().max().double_value(&[]) < 1e-12
    }

    /// Splits of `total` that are multiples of `unit`, different for every seed.
    fn splits(total: i64, unit: i64, seed: i64) -> Vec<i64> {
        let (mut left, mut out, mut n) = (total / unit, Vec::new(), seed);
        while left > 0 {
            n = (n * 1_103_515_245 + 12_345) % 2_147_483_648;
            let part = (1 + n / 65_536 % 4).min(left);
            out.push(part * unit);
            left -= part;
        }
        out
    }

    #[test]
    fn any_split_into_whole_strides_gives_the_whole_signal() {
        for (kernel, stride, dilation) in [(1, 1, 1), (3, 1, 2), (7, 1, 1), (8, 4, 1), (5, 2, 3), (4, 4, 1)] {
            for padding in [Padding::Zeros, Padding::Replicate] {
                let weight = Tensor::randn([4, 3, kernel], DOUBLE);
                let conv =
                    CausalConv::new(weight, Some(Tensor::randn([4], DOUBLE)), stride, dilation, padding);
                let x = Tensor::randn([2, 3, 24], DOUBLE);
                let whole = conv.step(&mut conv.state(2), &x, None);
                let (mut state, mut start, mut parts) = (conv.state(2), 0, Vec::new());
                for t in splits(24, stride, kernel) {
                    parts.push(conv.step(&mut state, &x.narrow(2, start, t), None));
                    start += t;
                }
                assert!(close(&Tensor::cat(&parts, 2), &whole), "{kernel} {stride} {dilation} {padding:?}");
            }
        }
        for (kernel, stride, groups) in [(8, 4, 1), (4, 2, 3), (9, 2, 1), (3, 3, 1)] {
            let weight = Tensor::randn([3, 6 / groups, kernel], DOUBLE);
            let conv = CausalConvTr::new(weight, Some(Tensor::randn([6], DOUBLE)), stride, groups);
            let x = Tensor::randn([2, 3, 12], DOUBLE);
            let whole = conv.step(&mut conv.state(2), &x, None);
            let (mut state, mut start, mut parts) = (conv.state(2), 0, Vec::new());
            for t in splits(12, 1, kernel) {
                parts.push(conv.step(&mut state, &x.narrow(2, start, t), None));
                start += t;
            }
            assert!(close(&Tensor::cat(&parts, 2), &whole), "transposed {kernel} {stride} {groups}");
        }
    }

    #[test]
    fn a_slot_that_sits_out_keeps_every_bit_and_does_not_count_as_started() {
        let conv = CausalConv::new(Tensor::randn([2, 3, 4], DOUBLE), None, 2, 1, Padding::Replicate);
        let up = CausalConvTr::new(Tensor::randn([3, 2, 4], DOUBLE), None, 2, 1);
        let (mut state, mut up_state) = (conv.state(2), up.state(2));
        let x = Tensor::randn([2, 3, 6], DOUBLE);
        // What a masked slot is given must not matter, not even NaN.
        let noise = Tensor::full([1, 3, 6], f64::NAN, DOUBLE);
        let first = Tensor::cat(&[x.narrow(0, 0, 1), noise], 0);
        let only = Tensor::from_slice(&[true, false]);
        let _ = conv.step(&mut state, &first, Some(&only));
        let _ = up.step(&mut up_state, &first, Some(&only));
        for (found, fresh) in state.slot(1).iter().zip(conv.state(1).slot(0)) {
            assert!(found.equal(&fresh));
        }
        assert!(up_state.slot(1).equal(&up.state(1).slot(0)));
        // The second slot starts now and gets its own replicated first sample; the first one goes on.
        let y = conv.step(&mut state, &x, Some(&Tensor::from_slice(&[true, true])));
        let alone = conv.step(&mut conv.state(1), &x.narrow(0, 1, 1), None);
        assert!(close(&y.narrow(0, 1, 1), &alone));
        state.reset(0);
        for (found, fresh) in state.slot(0).iter().zip(conv.state(1).slot(0)) {
            assert!(found.equal(&fresh));
        }
    }
}
