use std::fmt;

use crate::{Dtype, report::write_groups};

/// Everything that keeps an adapter's files from being used, found in one pass.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdapterReport {
    /// Kyutai names of tensors the file lacks.
    pub missing: Vec<String>,
    /// Names that belong to no linear of the model.
    pub unexpected: Vec<String>,
    /// Names that give a tensor again that another name gives.
    pub duplicate: Vec<String>,
    /// `(name, wanted, found)` where only the rank differs.
    pub wrong_rank: Vec<(String, i64, i64)>,
    /// `(name, wanted, found)`.
    pub wrong_shape: Vec<(String, Vec<i64>, Vec<i64>)>,
    /// Tensors that are not of the file's one floating-point type.
    pub wrong_dtype: Vec<(String, Dtype)>,
    /// Statements of the configuration that the model, the file's header or its names contradict.
    pub disagreements: Vec<String>,
}

impl AdapterReport {
    /// True when nothing is wrong.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for AdapterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.wrong_rank.iter().map(|(n, want, got)| format!("{n} has {got}, not {want}"));
        let shapes = self.wrong_shape.iter().map(|(n, want, got)| format!("{n} is {got:?}, not {want:?}"));
        let types = self.wrong_dtype.iter().map(|(n, got)| format!("{n} is {}", got.name()));
        let groups = [
            ("missing", &self.missing),
            ("unexpected", &self.unexpected),
            ("given twice", &self.duplicate),
            ("wrong rank", &ranks.collect()),
            ("wrong shape", &shapes.collect()),
            ("wrong dtype", &types.collect()),
            ("contradictions", &self.disagreements),
        ];
        write_groups(f, &groups)
    }
}
