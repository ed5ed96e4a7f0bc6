use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::{Dtype, SafetensorsFile, TensorEntry, TensorSpec};

/// Names shown of a long list.
const SHOWN: usize = 8;

/// How the tensors of a checkpoint differ from what it should hold: everything at once, in the checkpoint's own spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameReport {
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    /// `(name, wanted, found)`.
    pub wrong_shape: Vec<(String, Vec<i64>, Vec<i64>)>,
    /// Tensors that are not F32, F16 or BF16.
    pub wrong_dtype: Vec<(String, Dtype)>,
}

impl NameReport {
    /// Compares a file with what it should hold.
    pub fn compare(file: &SafetensorsFile, wanted: &[TensorSpec]) -> Self {
        Self::of(file.tensors(), wanted)
    }

    /// Compares named tensors with what should be there.
    pub fn of<'a>(found: impl Iterator<Item = (&'a str, &'a TensorEntry)>, wanted: &[TensorSpec]) -> Self {
        let found: BTreeMap<&str, &TensorEntry> = found.collect();
        let names: BTreeSet<&str> = wanted.iter().map(|s| s.name.as_str()).collect();
        let mut report = Self::default();
        for spec in wanted {
            let Some(entry) = found.get(spec.name.as_str()) else {
                report.missing.push(spec.name.clone());
                continue;
            };
            if entry.shape != spec.shape {
                report.wrong_shape.push((spec.name.clone(), spec.shape.clone(), entry.shape.clone()));
            }
            if !entry.dtype.is_weight() {
                report.wrong_dtype.push((spec.name.clone(), entry.dtype));
            }
        }
        report.unexpected = found.keys().filter(|n| !names.contains(*n)).map(|n| n.to_string()).collect();
        report
    }

    /// True when nothing differs.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty()
            && self.unexpected.is_empty()
            && self.wrong_shape.is_empty()
            && self.wrong_dtype.is_empty()
    }
}

impl fmt::Display for NameReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shapes: Vec<String> =
            self.wrong_shape.iter().map(|(n, want, got)| format!("{n} is {got:?}, not {want:?}")).collect();
        let dtypes: Vec<String> = self
            .wrong_dtype
            .iter()
            .map(|(n, dtype)| format!("{n} is {}, not F32, F16 or BF16", dtype.name()))
            .collect();
        let groups = [
            ("missing", &self.missing),
            ("unexpected", &self.unexpected),
            ("wrong shape", &shapes),
            ("wrong dtype", &dtypes),
        ];
        write_groups(f, &groups)
    }
}

/// The lists of a report that are not empty, each with its label, its length and its first lines.
pub(crate) fn write_groups(f: &mut fmt::Formatter<'_>, groups: &[(&str, &Vec<String>)]) -> fmt::Result {
    let mut first = true;
    for (label, names) in groups.iter().filter(|(_, names)| !names.is_empty()) {
        let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        write!(f, "{}{} {label}: {shown}", if first { "" } else { "; " }, names.len())?;
        if names.len() > SHOWN {
            write!(f, ", … and {} more", names.len() - SHOWN)?;
        }
        first = false;
    }
    if first { f.write_str("nothing differs") } else { Ok(()) }
}
