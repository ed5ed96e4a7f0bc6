use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use serde::Deserialize;

use crate::WeightsError;

/// Element types found in model files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U8,
    BOOL,
}

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::BOOL => 1,
        }
    }

    /// Spelling in the file header.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::I64 => "I64",
            Self::I32 => "I32",
            Self::I16 => "I16",
            Self::I8 => "I8",
            Self::U8 => "U8",
            Self::BOOL => "BOOL",
        }
    }
}

/// One tensor of a file; its bytes are little-endian and row-major.
#[derive(Debug, Clone)]
pub struct TensorEntry {
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    range: Range<usize>,
}

/// A memory-mapped safetensors file whose header was checked: offsets ascend without gaps, sizes fit, nothing follows.
pub struct SafetensorsFile {
    path: PathBuf,
    map: Mmap,
    data_start: usize,
    tensors: BTreeMap<String, TensorEntry>,
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: Dtype,
    shape: Vec<i64>,
    data_offsets: [usize; 2],
}

/// A header above this size is no header (the 7B's is 60 kB).
const MAX_HEADER: u64 = 64 << 20;

impl SafetensorsFile {
    /// Maps the file and checks its header; tensor bytes are not touched. Each way to be wrong has its own error.
    #[expect(unsafe_code, reason = "memory map")]
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let file = File::open(path).map_err(WeightsError::io("open", path))?;
        let length = file.metadata().map_err(WeightsError::io("stat", path))?.len();
        let bad = |detail: String| WeightsError::NotSafetensors { path: path.to_path_buf(), detail };
        if length < 9 {
            return Err(bad(format!("it has {length} bytes")));
        }
        // SAFETY: the map is read-only and private to this value; model files are written once, under a temporary
        // name, and renamed, so no writer changes the bytes under us.
        let map = unsafe { Mmap::map(&file) }.map_err(WeightsError::io("map", path))?;
        if map.starts_with(b"version https://git-lfs") {
            return Err(WeightsError::LfsPointer { path: path.to_path_buf() });
        }
        let header = u64::from_le_bytes(map[..8].try_into().expect("eight bytes"));
        if header > MAX_HEADER || map[8] != b'{' {
            return Err(bad(format!("no header at its start (length field {header})")));
        }
        if 8 + header > length {
            return Err(WeightsError::Truncated {
                path: path.to_path_buf(),
                expected: 8 + header,
                found: length,
            });
        }
        let data_start = 8 + header as usize;
        let (tensors, metadata, end) = parse_header(&map[8..data_start]).map_err(bad)?;
        let expected = (data_start + end) as u64;
        if expected > length {
            return Err(WeightsError::Truncated { path: path.to_path_buf(), expected, found: length });
        }
        if expected < length {
            return Err(WeightsError::TrailingBytes { path: path.to_path_buf(), extra: length - expected });
        }
        Ok(Self { path: path.to_path_buf(), map, data_start, tensors, metadata })
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

    /// The free-form strings of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Number of elements of all tensors.
    pub fn elements(&self) -> u64 {
        self.tensors.values().map(|e| e.shape.iter().product::<i64>() as u64).sum()
    }
}

type Header = (BTreeMap<String, TensorEntry>, BTreeMap<String, String>, usize);

fn parse_header(bytes: &[u8]) -> Result<Header, String> {
    let raw: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(bytes).map_err(|e| format!("its header is not JSON: {e}"))?;
    let mut tensors = BTreeMap::new();
    let mut metadata = BTreeMap::new();
    for (name, value) in raw {
        if name == "__metadata__" {
            metadata =
                serde_json::from_value(value).map_err(|e| format!("its metadata is not strings: {e}"))?;
            continue;
        }
        let entry: RawEntry = serde_json::from_value(value).map_err(|e| format!("tensor {name:?}: {e}"))?;
        let [start, end] = entry.data_offsets;
        let elements = entry
            .shape
            .iter()
            .try_fold(1i64, |n, d| (*d >= 0).then(|| n.checked_mul(*d)).flatten())
            .ok_or_else(|| format!("tensor {name:?} has shape {:?}", entry.shape))?;
        if end.checked_sub(start) != (elements as usize).checked_mul(entry.dtype.size()) {
            return Err(format!("tensor {name:?} of shape {:?} has offsets {start}..{end}", entry.shape));
        }
        tensors.insert(name, TensorEntry { dtype: entry.dtype, shape: entry.shape, range: start..end });
    }
    let mut ranges: Vec<(&Range<usize>, &String)> = tensors.iter().map(|(n, e)| (&e.range, n)).collect();
    ranges.sort_by_key(|(r, _)| (r.start, r.end));
    let mut end = 0;
    for (range, name) in ranges {
        if range.start != end {
            return Err(format!("tensor {name:?} starts at {} where {end} was expected", range.start));
        }
        end = range.end;
    }
    Ok((tensors, metadata, end))
}
