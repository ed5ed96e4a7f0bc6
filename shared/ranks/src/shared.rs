use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tch::Tensor;

use crate::{Alone, Group, RanksError};

/// One group that several parts of a process use in turn, e.g. the training loop and what brings the weights of layers.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Box<dyn Group>>>);

impl Shared {
    /// Takes a group over.
    pub fn new(group: impl Group + 'static) -> Self {
        Self::from(Box::new(group) as Box<dyn Group>)
    }

    /// One process on its own.
    #[must_use]
    pub fn alone() -> Self {
        Self::new(Alone)
    }

    fn group(&self) -> MutexGuard<'_, Box<dyn Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Box<dyn Group>> for Shared {
    fn from(group: Box<dyn Group>) -> Self {
        Self(Arc::new(Mutex::new(group)))
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Group for Shared {
    fn rank(&self) -> usize {
        self.group().rank()
    }

    fn world(&self) -> usize {
        self.group().world()
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), RanksError> {
        self.group().sum(values)
    }

    fn sum_tensors(&self, tensors: &[Tensor]) -> Result<(), RanksError> {
        self.group().sum_tensors(tensors)
    }

    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        self.group().broadcast(bytes)
    }

    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError> {
        self.group().gather(part, whole)
    }
}
