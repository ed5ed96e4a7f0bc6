//! The header of a safetensors file, checked so that every later access is inside the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::{Dtype, TensorEntry, WeightsError};

/// A checked header: tensors ascend without gaps and overlaps from 0 to `end`.
pub(crate) struct Header {
    pub(crate) tensors: BTreeMap<String, TensorEntry>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Bytes of data that must follow the header.
    pub(crate) end: usize,
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<i64>,
    data_offsets: [usize; 2],
}

/// Entries in file order: a map would keep the last of two equal names and say nothing.
#[derive(Default)]
struct RawHeader {
    entries: Vec<(String, RawEntry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut raw = RawHeader::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        raw.metadata = map.next_value()?;
                    } else {
                        let entry = map.next_value()?;
                        raw.entries.push((name, entry));
                    }
                }
                Ok(raw)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Parses and checks the bytes between the length field and the data.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Header, WeightsError> {
    let RawHeader { entries, metadata } = read_json(path, bytes)?;
    let mut tensors = BTreeMap::new();
    for (name, raw) in entries {
        let entry =
            entry(&name, raw).map_err(|detail| WeightsError::NotSafetensors { path: path.into(), detail })?;
        if tensors.insert(name.clone(), entry).is_some() {
            return Err(WeightsError::DuplicateName { path: path.into(), name });
        }
    }
    let end = check_order(path, &tensors)?;
    Ok(Header { tensors, metadata, end })
}

fn read_json(path: &Path, bytes: &[u8]) -> Result<RawHeader, WeightsError> {
    let misaligned = |detail: String| WeightsError::MisalignedHeader {
        path: path.into(),
        length: bytes.len() as u64,
        detail,
    };
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<RawHeader>();
    let header = match stream.next() {
        Some(Ok(header)) => header,
        Some(Err(e)) if e.is_eof() => return Err(misaligned("the JSON does not end within them".into())),
        Some(Err(e)) => {
            let detail = format!("its header cannot be used: {e}");
            return Err(WeightsError::NotSafetensors { path: path.into(), detail });
        }
        None => return Err(misaligned("there is no JSON in them".into())),
    };
    let end = stream.byte_offset();
    if !bytes[end..].iter().all(u8::is_ascii_whitespace) {
        return Err(misaligned(format!("the JSON ends after {end}")));
    }
    Ok(header)
}

fn entry(name: &str, raw: RawEntry) -> Result<TensorEntry, String> {
    let RawEntry { dtype, shape, data_offsets: [start, end] } = raw;
    let dtype = Dtype::parse(&dtype).ok_or_else(|| format!("tensor {name:?} has unknown type {dtype:?}"))?;
    let elements = shape
        .iter()
        .try_fold(1i64, |n, d| (*d >= 0).then(|| n.checked_mul(*d)).flatten())
        .ok_or_else(|| format!("tensor {name:?} has shape {shape:?}"))?;
    let bytes = usize::try_from(elements).ok().and_then(|n| n.checked_mul(dtype.size()));
    if bytes.is_none() || end.checked_sub(start) != bytes {
        let dtype = dtype.name();
        return Err(format!(
            "tensor {name:?} of shape {shape:?} and type {dtype} has offsets {start}..{end}"
        ));
    }
    Ok(TensorEntry { dtype, shape, range: start..end })
}

fn check_order(path: &Path, tensors: &BTreeMap<String, TensorEntry>) -> Result<usize, WeightsError> {
    let ranges: BTreeSet<(usize, usize, &String)> =
        tensors.iter().map(|(n, e)| (e.range.start, e.range.end, n)).collect();
    let mut last: (&str, Range<usize>) = ("", 0..0);
    for (start, end, name) in ranges {
        if start < last.1.end {
            return Err(WeightsError::Overlap {
                path: path.into(),
                name: name.clone(),
                start: start as u64,
                other: last.0.into(),
                end: last.1.end as u64,
            });
        }
        if start > last.1.end {
            return Err(WeightsError::Gap {
                path: path.into(),
                name: name.clone(),
                start: start as u64,
                expected: last.1.end as u64,
            });
        }
        last = (name, start..end);
    }
    Ok(last.1.end)
}
