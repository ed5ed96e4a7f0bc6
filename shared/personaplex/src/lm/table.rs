use nn::{Checkpoint, lookup};
use tch::Tensor;

use crate::PersonaplexError;

/// An embedding table `[V, width]` and, on a model whose adapter has trained tables, the trained one in its place. The
/// base's stays: it comes back when the adapter is taken off or switched off.
pub(crate) struct Table {
    base: Tensor,
    trained: Option<Tensor>,
}

impl Table {
    pub(crate) fn load(file: &Checkpoint, name: &str) -> Result<Self, PersonaplexError> {
        Ok(Self { base: file.get(name)?, trained: None })
    }

    /// Rows of the table in force in the model's kind, whatever kind it is trained in: `[..] -> [.., width]`.
    pub(crate) fn lookup(&self, ids: &Tensor) -> Tensor {
        let table = self.trained.as_ref().filter(|_| !nn::adapters_off()).unwrap_or(&self.base);
        lookup(table, ids).to_kind(self.base.kind())
    }

    pub(crate) fn base(&self) -> &Tensor {
        &self.base
    }

    pub(crate) fn trained(&self) -> Option<&Tensor> {
        self.trained.as_ref()
    }

    pub(crate) fn replace(&mut self, trained: Option<Tensor>) {
        self.trained = trained;
    }
}
