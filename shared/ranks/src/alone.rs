use tch::Tensor;

use crate::{Group, RanksError};

/// One process on its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Group for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn world(&self) -> usize {
        1
    }

    fn sum(&self, _values: &mut [f64]) -> Result<(), RanksError> {
        Ok(())
    }

    fn sum_tensors(&self, _tensors: &[Tensor]) -> Result<(), RanksError> {
        Ok(())
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        Ok(bytes)
    }

    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError> {
        tch::no_grad(|| whole.shallow_clone().copy_(part));
        Ok(())
    }
}
