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

    fn state(&self, batch: i64) -> ResidualState {
        ResidualState { wide: self.wide.state(batch), point: self.point.state(batch) }
    }

    fn step(&self, state: &mut ResidualState, x: &Tensor, active: Option<&Tensor>) -> Tensor {
        let inner = self.wide.step(&mut state.wide, &x.elu(), active);
        x + self.point.step(&mut state.point, &inner.elu(), active)
    }
}

struct ResidualState {
    wide: ConvState,
    point: ConvState,
}

impl ResidualState {
    fn reset(&mut self, slot: i64) {
        self.wide.reset(slot);
        self.point.reset(slot);
    }

    fn slot(&self, slot: i64) -> Vec<Tensor> {
        self.wide.slot(slot).into_iter().chain(self.point.slot(slot)).collect()
    }
}

/// Wave to 25 Hz features (`encoder.model.*`).
pub(super) struct SeanetEncoder {
    first: CausalConv,
    stages: Vec<(Residual, CausalConv)>,
    last: CausalConv,
}

pub(super) struct EncoderState {
    first: ConvState,
    stages: Vec<(ResidualState, ConvState)>,
    last: ConvState,
}

impl EncoderState {
    pub(super) fn reset(&mut self, slot: i64) {
        for (residual, down) in &mut self.stages {
            residual.reset(slot);
            down.reset(slot);
        }
        self.first.reset(slot);
        self.last.reset(slot);
    }

    /// Copies of what a slot remembers.
    pub(super) fn slot(&self, slot: i64) -> Vec<Tensor> {
        let stages = self.stages.iter().flat_map(|(r, down)| [r.slot(slot), down.slot(slot)]).flatten();
        stages.chain(self.first.slot(slot)).chain(self.last.slot(slot)).collect()
    }
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

    pub(super) fn state(&self, batch: i64) -> EncoderState {
        let stage = |(residual, down): &(Residual, CausalConv)| (residual.state(batch), down.state(batch));
        EncoderState {
            first: self.first.state(batch),
            stages: self.stages.iter().map(stage).collect(),
            last: self.last.state(batch),
        }
    }

    /// `[B, 1, T] -> [B, C, T / hop]`.
    pub(super) fn step(&self, state: &mut EncoderState, wave: &Tensor, active: Option<&Tensor>) -> Tensor {
        let mut x = self.first.step(&mut state.first, wave, active);
        for ((residual, down), (residual_state, down_state)) in self.stages.iter().zip(&mut state.stages) {
            x = residual.step(residual_state, &x, active);
            x = down.step(down_state, &x.elu(), active);
        }
        self.last.step(&mut state.last, &x.elu(), active)
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
    stages: Vec<(ConvTrState, ResidualState)>,
    last: ConvState,
}

impl DecoderState {
    pub(super) fn reset(&mut self, slot: i64) {
        for (up, residual) in &mut self.stages {
            up.reset(slot);
            residual.reset(slot);
        }
        self.first.reset(slot);
        self.last.reset(slot);
    }

    /// Copies of what a slot remembers.
    pub(super) fn slot(&self, slot: i64) -> Vec<Tensor> {
        let stages = self.stages.iter().flat_map(|(up, r)| [vec![up.slot(slot)], r.slot(slot)]).flatten();
        stages.chain(self.first.slot(slot)).chain(self.last.slot(slot)).collect()
    }
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

    pub(super) fn state(&self, batch: i64) -> DecoderState {
        let stage = |(up, residual): &(CausalConvTr, Residual)| (up.state(batch), residual.state(batch));
        DecoderState {
            first: self.first.state(batch),
            stages: self.stages.iter().map(stage).collect(),
            last: self.last.state(batch),
        }
    }

    /// `[B, C, T] -> [B, 1, T * hop]`.
    pub(super) fn step(&self, state: &mut DecoderState, x: &Tensor, active: Option<&Tensor>) -> Tensor {
        let mut x = self.first.step(&mut state.first, x, active);
        for ((up, residual), (up_state, residual_state)) in self.stages.iter().zip(&mut state.stages) {
            x = up.step(up_state, &x.elu(), active);
            x = residual.step(residual_state, &x, active);
        }
        self.last.step(&mut state.last, &x.elu(), active)
    }
}
