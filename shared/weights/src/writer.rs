use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Dtype, WeightsError, temporary_beside};

/// One tensor to be written: what its header entry says.
#[derive(Debug, Clone)]
pub struct TensorPlan {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<i64>,
}

impl TensorPlan {
    /// Size of the tensor in the file.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<i64>() as u64 * self.dtype.size() as u64
    }
}

/// Length field and header for `plan`, and where each tensor starts in the file.
pub(crate) fn header(plan: &[TensorPlan], metadata: &BTreeMap<String, String>) -> (Vec<u8>, Vec<u64>) {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), serde_json::json!(metadata));
    }
    let mut starts = Vec::new();
    let mut offset = 0;
    for t in plan {
        let end = offset + t.bytes();
        let entry = serde_json::json!({
            "dtype": t.dtype.name(), "shape": t.shape, "data_offsets": [offset, end],
        });
        header.insert(t.name.clone(), entry);
        starts.push(offset);
        offset = end;
    }
    let mut text = serde_json::Value::Object(header).to_string();
    // The data starts at a multiple of eight, as the format's own writer does it.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let data = bytes.len() as u64;
    (bytes, starts.into_iter().map(|start| data + start).collect())
}

/// Writes a safetensors file tensor by tensor, so a file larger than memory can be made. The file appears under its name
/// only after [`SafetensorsWriter::finish`] (temporary name, fsync, rename); a dropped writer leaves nothing behind.
pub struct SafetensorsWriter {
    path: PathBuf,
    temporary: PathBuf,
    out: Option<BufWriter<File>>,
    plan: std::vec::IntoIter<TensorPlan>,
}

impl SafetensorsWriter {
    /// Writes the header for `plan`; tensors must then be given in its order.
    pub fn create(
        path: &Path,
        plan: Vec<TensorPlan>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self, WeightsError> {
        let (text, _) = header(&plan, metadata);
        let temporary = temporary_beside(path);
        let file = File::create(&temporary).map_err(WeightsError::io("create", &temporary))?;
        let mut writer =
            Self { path: path.into(), temporary, out: Some(BufWriter::new(file)), plan: plan.into_iter() };
        writer.write(&text)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        let out = self.out.as_mut().expect("open until finish takes it");
        out.write_all(bytes).map_err(WeightsError::io("write", &self.temporary))
    }

    /// Appends the little-endian bytes of the next tensor of the plan.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), WeightsError> {
        let found = bytes.len() as u64;
        match self.plan.next() {
            Some(t) if t.name == name && t.bytes() == found => self.write(bytes),
            next => {
                let expected = next.map_or(0, |t| t.bytes());
                Err(WeightsError::WrongWrite { name: name.into(), expected, found })
            }
        }
    }

    /// Makes the file durable and gives it its name. Fails when tensors of the plan were not written.
    pub fn finish(mut self) -> Result<(), WeightsError> {
        if let Some(t) = self.plan.next() {
            return Err(WeightsError::WrongWrite { expected: t.bytes(), name: t.name, found: 0 });
        }
        let out = self.out.take().expect("open until finish takes it");
        let file =
            out.into_inner().map_err(|e| WeightsError::io("write", &self.temporary)(e.into_error()))?;
        file.sync_all().map_err(WeightsError::io("sync", &self.temporary))?;
        std::fs::rename(&self.temporary, &self.path).map_err(WeightsError::io("rename", &self.temporary))
    }
}

impl Drop for SafetensorsWriter {
    fn drop(&mut self) {
        // After `finish` the temporary name is gone and this does nothing.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
