//! Golden data: reference numbers made elsewhere, one folder per set.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::workspace::workspace_root;

/// The path of a golden file below `PPX_GOLDEN_DIR` (default: `tests/golden`). An error when it is missing: a test
/// without its reference must fail, not pass.
pub fn golden_path(relative: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("PPX_GOLDEN_DIR")
        .map_or_else(|| workspace_root().join("tests/golden"), PathBuf::from);
    let path = folder.join(relative);
    ensure!(
        path.exists(),
        "golden data {relative} is not in {}: PPX_GOLDEN_DIR names the folder that holds it",
        folder.display()
    );
    Ok(path)
}

/// A golden JSON file.
pub fn golden_json(relative: &str) -> Result<serde_json::Value> {
    let path = golden_path(relative)?;
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// A golden `.safetensors` file.
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Golden {
    /// Reads and checks the file.
    pub fn open(relative: &str) -> Result<Self> {
        let path = golden_path(relative)?;
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        SafeTensors::deserialize(&bytes).with_context(|| path.display().to_string())?;
        Ok(Self { path, bytes })
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> Vec<String> {
        let tensors = SafeTensors::deserialize(&self.bytes).expect("checked when opened");
        let mut names: Vec<String> = tensors.names().into_iter().map(ToString::to_string).collect();
        names.sort();
        names
    }

    /// The file's string metadata.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).expect("checked when opened");
        header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Shape and values (row-major) of an F32 or BF16 tensor.
    pub fn f32(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        self.view(name, |view| {
            Ok(match view.dtype() {
                Dtype::F32 => words(view.data()).map(f32::from_le_bytes).collect(),
                // BF16 is the upper half of an F32.
                Dtype::BF16 => {
                    words(view.data()).map(|[low, high]| f32::from_le_bytes([0, 0, low, high])).collect()
                }
                other => bail!("{name} is {other:?}, not F32 or BF16"),
            })
        })
    }

    /// Shape and values (row-major) of an integer tensor: I64, I32, U8 or BOOL.
    pub fn i64(&self, name: &str) -> Result<(Vec<usize>, Vec<i64>)> {
        self.view(name, |view| {
            Ok(match view.dtype() {
                Dtype::I64 => words(view.data()).map(i64::from_le_bytes).collect(),
                Dtype::I32 => words(view.data()).map(|word| i32::from_le_bytes(word).into()).collect(),
                Dtype::U8 | Dtype::BOOL => view.data().iter().map(|byte| (*byte).into()).collect(),
                other => bail!("{name} is {other:?}, not an integer"),
            })
        })
    }

    fn view<T>(
        &self,
        name: &str,
        read: impl FnOnce(&TensorView<'_>) -> Result<T>,
    ) -> Result<(Vec<usize>, T)> {
        let tensors = SafeTensors::deserialize(&self.bytes).expect("checked when opened");
        let view =
            tensors.tensor(name).with_context(|| format!("no tensor {name} in {}", self.path.display()))?;
        Ok((view.shape().to_vec(), read(&view)?))
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).map(|chunk| chunk.try_into().expect("chunks have this length"))
}
