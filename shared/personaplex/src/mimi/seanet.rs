use nn::{CausalConv, CausalConvTr, Checkpoint, ConvState, ConvTrState, Padding};
use tch::Tensor;
use weights::MimiConfig;

use crate::PersonaplexError;

fn conv(file: &Checkpoint, name: &str, stride: i64) -> Result<CausalConv, PersonaplexError> {
    let (weight, bias) =
        (file.get(&format!("{name}.conv.conv.weight"))?, file.get(&format!("{name}.conv.conv.bias"))?);
    Ok(CausalConv::new(weight, Some(bias), stride, 1, Padding::Zeros))
}

/// `x + conv_k1(ELU(conv_k3(ELU(x))))` with a narrower inside.
struct Residual {
    wide: CausalConv,
    point: CausalConv,
}

impl Residual {
    fn load(file: &Checkpoint, name: &str) -> Result<Self, PersonaplexError> {
        Ok(Self {
            wide: conv(file, &format!("{name}.block.1"), 1)?,
            point: conv(file, &format!("{name}.block.3"), 1)?,
        })
    }

    fn step(&self, state: &mut ConvState, x: &Tensor) -> Tensor {
        let inner = self.wide.step(state, &x.elu());
        // A kernel of one remembers nothing.
        x + self.point.step(&mut ConvState::new(), &inner.elu())
    }
}

/// Wave to 25 Hz features (`encoder.model.*`).
pub(super) struct SeanetEncoder {
    first: CausalConv,
    stages: Vec<(Residual, CausalConv)>,
    last: CausalConv,
}

impl SeanetEncoder {
    pub(super) fn load(file: &Checkpoint, c: &MimiConfig) -> Result<Self, PersonaplexError> {
        // Module list: conv, then per stage [residual, ELU, conv], then [ELU, conv].
        let mut stages = Vec::new();
        for (i, ratio) in c.seanet.ratios.iter().rev().enumerate() {
            let residual = Residual::load(file, &format!("encoder.model.{}", 1 + 3 * i))?;
            stages.push((residual, conv(file, &format!("encoder.model.{}", 3 + 3 * i), *ratio)?));
        }
        let last = conv(file, &format!("encoder.model.{}", 2 + 3 * stages.len()), 1)?;
        Ok(Self { first: conv(file, "encoder.model.0", 1)?, stages, last })
    }

    pub(super) fn state(&self) -> Vec<ConvState> {
        (0..2 + 2 * self.stages.len()).map(|_| ConvState::new()).collect()
    }

    /// `[B, 1, T] -> [B, C, T / hop]`.
    pub(super) fn step(&self, states: &mut [ConvState], wave: &Tensor) -> Tensor {
        let [first, middle @ .., last] = states else { unreachable!("made by state()") };
        let mut x = self.first.step(first, wave);
        for ((residual, down), state) in self.stages.iter().zip(middle.chunks_exact_mut(2)) {
            x = residual.step(&mut state[0], &x);
            x = down.step(&mut state[1], &x.elu());
        }
        self.last.step(last, &x.elu())
    }
}

/// 25 Hz features to wave (`decoder.model.*`).
pub(super) struct SeanetDecoder {
    first: CausalConv,
    stages: Vec<(CausalConvTr, Residual)>,
    last: CausalConv,
}

pub(super) struct DecoderState {
    first: ConvState,
    stages: Vec<(ConvTrState, ConvState)>,
    last: ConvState,
}

impl SeanetDecoder {
    pub(super) fn load(file: &Checkpoint, c: &MimiConfig) -> Result<Self, PersonaplexError> {
        // Module list: conv, then per stage [ELU, transposed conv, residual], then [ELU, conv].
        let mut stages = Vec::new();
        for (i, ratio) in c.seanet.ratios.iter().enumerate() {
            let name = format!("decoder.model.{}.convtr.convtr", 2 + 3 * i);
            let (weight, bias) = (file.get(&format!("{name}.weight"))?, file.get(&format!("{name}.bias"))?);
            let residual = Residual::load(file, &format!("decoder.model.{}", 3 + 3 * i))?;
            stages.push((CausalConvTr::new(weight, Some(bias), *ratio, 1), residual));
        }
        let last = conv(file, &format!("decoder.model.{}", 2 + 3 * stages.len()), 1)?;
        Ok(Self { first: conv(file, "decoder.model.0", 1)?, stages, last })
    }

    pub(super) fn state(&self) -> DecoderState {
        DecoderState {
            first: ConvState::new(),
            stages: self.stages.iter().map(|_| (ConvTrState::new(), ConvState::new())).collect(),
            last: ConvState::new(),
        }
    }

    /// `[B, C, T] -> [B, 1, T * hop]`.
    pub(super) fn step(&self, state: &mut DecoderState, x: &Tensor) -> Tensor {
        let mut x = self.first.step(&mut state.first, x);
        for ((up, residual), (up_state, residual_state)) in self.stages.iter().zip(&mut state.stages) {
            x = up.step(up_state, &x.elu());
            x = residual.step(residual_state, &x);
        }
        self.last.step(&mut state.last, &x.elu())
    }
}
