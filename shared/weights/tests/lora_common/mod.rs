//! Adapter files taken apart, changed and written again.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::Path;

use half::bf16;
use weights::{Dtype, SafetensorsFile, SafetensorsWriter, TensorEntry, TensorPlan, WeightsError};

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Values of an f32 or bf16 tensor.
pub fn values((entry, bytes): (&TensorEntry, &[u8])) -> Vec<f32> {
    match entry.dtype {
        Dtype::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// One tensor in memory.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    pub bytes: Vec<u8>,
}

/// A safetensors file in memory.
pub struct Tensors {
    pub all: BTreeMap<String, Tensor>,
    pub metadata: BTreeMap<String, String>,
}

impl Tensors {
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        let file = SafetensorsFile::open(path)?;
        let mut all = BTreeMap::new();
        for (name, entry) in file.tensors() {
            let bytes = file.tensor(name)?.1.to_vec();
            all.insert(name.to_string(), Tensor { dtype: entry.dtype, shape: entry.shape.clone(), bytes });
        }
        Ok(Self { all, metadata: file.metadata().clone() })
    }

    pub fn write(&self, path: &Path) -> Result<(), WeightsError> {
        let plan = self.all.iter().map(|(name, t)| TensorPlan {
            name: name.clone(),
            dtype: t.dtype,
            shape: t.shape.clone(),
        });
        let mut writer = SafetensorsWriter::create(path, plan.collect(), &self.metadata)?;
        for (name, t) in &self.all {
            writer.tensor(name, &t.bytes)?;
        }
        writer.finish()
    }

    pub fn rename(&mut self, new: impl Fn(String) -> String) {
        self.all = std::mem::take(&mut self.all).into_iter().map(|(name, t)| (new(name), t)).collect();
    }

    /// Joins `in_projs.{i}` and `out_projs.{i}` on their rows, as `in{projection}` and `out{projection}`.
    pub fn stack_projections(&mut self, projection: &str) {
        let names: Vec<String> = self.all.keys().filter(|n| n.contains("_projs.0.")).cloned().collect();
        for first in names {
            let (before, after) = first.split_once("_projs.0.").expect("filtered");
            let steps = (0..).map_while(|i| self.all.remove(&format!("{before}_projs.{i}.{after}")));
            let joined = steps.reduce(|mut joined, step| {
                joined.shape[0] += step.shape[0];
                joined.bytes.extend(step.bytes);
                joined
            });
            let name = format!("{before}{projection}.{after}");
            self.all.insert(name, joined.expect("step 0 is there"));
        }
    }
}
