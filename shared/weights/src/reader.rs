use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};

use crate::{Dtype, WeightsError, header, sniff};

/// One tensor of a file; its bytes are little-endian and row-major.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    pub(crate) range: Range<usize>,
}

impl TensorEntry {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product::<i64>() as u64
    }
}

/// A memory-mapped safetensors file whose header was checked: offsets ascend without gaps, sizes fit, nothing follows.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: Mmap,
    data_start: usize,
    tensors: BTreeMap<String, TensorEntry>,
    metadata: BTreeMap<String, String>,
}

/// A header above this size is no header (the 7B's is 60 kB).
const MAX_HEADER: u64 = 64 << 20;

impl SafetensorsFile {
    /// Maps the file and checks its header; tensor bytes are not touched. Each way to be wrong has its own error.
    #[expect(unsafe_code, reason = "memory map")]
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = sniff::open(path)?;
        let length = file.metadata().map_err(WeightsError::io("stat", path))?.len();
        if length == 0 {
            return Err(WeightsError::Empty { path: path.into() });
        }
        // SAFETY: the map is read-only and private to this value; model files are written once, under a temporary
        // name, and renamed, so no writer changes the bytes under us.
        let map = unsafe { Mmap::map(&file) }.map_err(WeightsError::io("map", path))?;
        let data_start = data_start(path, &map)?;
        let header = header::parse(path, &map[8..data_start])?;
        let expected = (data_start as u64).saturating_add(header.end as u64);
        if expected > length {
            return Err(WeightsError::Truncated { path: path.into(), expected, found: length });
        }
        if expected < length {
            return Err(WeightsError::TrailingBytes { path: path.into(), extra: length - expected });
        }
        Ok(Self { path: path.into(), map, data_start, tensors: header.tensors, metadata: header.metadata })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tensors by name, in name order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorEntry)> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Type, shape and bytes of one tensor.
    pub fn tensor(&self, name: &str) -> Result<(&TensorEntry, &[u8]), WeightsError> {
        let entry = self
            .tensors
            .get(name)
            .ok_or_else(|| WeightsError::NoTensor { path: self.path.clone(), name: name.into() })?;
        let range = self.data_start + entry.range.start..self.data_start + entry.range.end;
        Ok((entry, &self.map[range]))
    }

    /// Tells the kernel that a tensor's pages are not needed for now, so that reading a large file through does not
    /// fill this process's memory. The tensor can be read again; it then comes from the page cache or the disk.
    #[expect(unsafe_code, reason = "madvise")]
    pub fn release(&self, name: &str) {
        let Some(entry) = self.tensors.get(name).filter(|e| !e.range.is_empty()) else { return };
        let start = self.data_start + entry.range.start;
        // SAFETY: the map is shared, read-only and backed by a file: dropped pages are read from the file again, with
        // the same bytes, when somebody looks at them, so no borrowed slice changes.
        let advised =
            unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, entry.range.len()) };
        // Advice: a kernel that does not take it costs memory, nothing else.
        drop(advised);
    }

    /// The free-form strings of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Number of elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.tensors.values().map(TensorEntry::elements).sum()
    }
}

/// Where the data begins, from the length field at the start of the file.
fn data_start(path: &Path, bytes: &[u8]) -> Result<usize, WeightsError> {
    let length = bytes.len() as u64;
    let Some((field, rest)) = bytes.split_first_chunk::<8>() else {
        let short = WeightsError::Truncated { path: path.into(), expected: 8, found: length };
        return Err(sniff::other_kind(path, bytes).unwrap_or(short));
    };
    let header = u64::from_le_bytes(*field);
    if header > MAX_HEADER || rest.first().is_some_and(|b| *b != b'{') {
        let detail = format!("no header at its start (length field {header})");
        let unknown = WeightsError::NotSafetensors { path: path.into(), detail };
        return Err(sniff::other_kind(path, bytes).unwrap_or(unknown));
    }
    if 8 + header > length {
        return Err(WeightsError::Truncated { path: path.into(), expected: 8 + header, found: length });
    }
    Ok(8 + header as usize)
}
