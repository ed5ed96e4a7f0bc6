//! From what the program left to plain values: storages are read, strides resolved, everything counted.

use std::collections::HashMap;

use super::archive::{Archive, shown};
use super::pickle::{Cell, Heap, Id, Storage};
use super::{TorchValue, TorchZipError, TorchZipLimits};
use crate::Dtype;

/// Deepest nesting of dicts and tuples.
const MAX_DEPTH: usize = 16;
/// Most dimensions of a tensor.
const MAX_DIMS: usize = 8;

/// A tensor: little-endian elements, row-major, without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchTensor {
    /// Element type.
    pub dtype: Dtype,
    /// Sizes of the dimensions; none for a scalar.
    pub shape: Vec<i64>,
    /// `product(shape) * dtype.size()` bytes.
    pub data: Vec<u8>,
}

pub(super) struct Builder<'h, 'z, 'b> {
    heap: &'h Heap,
    archive: &'z mut Archive<'b>,
    storages: HashMap<String, (Dtype, Vec<u8>)>,
    values_left: usize,
    bytes_left: u64,
    limits: TorchZipLimits,
}

/// Description of a tensor, checked.
struct View {
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
    elements: u64,
}

impl<'h, 'z, 'b> Builder<'h, 'z, 'b> {
    pub(super) fn new(heap: &'h Heap, archive: &'z mut Archive<'b>, limits: &TorchZipLimits) -> Self {
        let (values_left, bytes_left) = (limits.values, limits.tensor_bytes);
        Self { heap, archive, storages: HashMap::new(), values_left, bytes_left, limits: *limits }
    }

    pub(super) fn build(mut self) -> Result<TorchValue, TorchZipError> {
        self.value(self.heap.root, "", 0)
    }

    /// `path` names the value in messages. A dict that contains itself ends at the depth limit.
    fn value(&mut self, id: Id, path: &str, depth: usize) -> Result<TorchValue, TorchZipError> {
        let content = |detail: String| TorchZipError::Content { detail };
        if depth > MAX_DEPTH {
            return Err(content(format!("its values are nested deeper than {MAX_DEPTH}")));
        }
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| content(format!("it holds more than {} values", self.limits.values)))?;
        let heap = self.heap;
        Ok(match &heap.cells[id] {
            Cell::Int(value) => TorchValue::Int(*value),
            Cell::Bool(value) => TorchValue::Bool(*value),
            Cell::Str(text) => {
                self.bytes_left = self
                    .bytes_left
                    .checked_sub(text.len() as u64)
                    .ok_or_else(|| content("its texts are too long".into()))?;
                TorchValue::Str(text.clone())
            }
            Cell::Tuple(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(i, item)| self.value(*item, &format!("{path}[{i}]"), depth + 1));
                TorchValue::Tuple(items.collect::<Result<_, _>>()?)
            }
            Cell::Dict(entries) => TorchValue::Dict(self.dict(entries, path, depth)?),
            Cell::Tensor(args) => {
                let tensor = self.tensor(args);
                TorchValue::Tensor(tensor.map_err(|e| named(e, path))?)
            }
            Cell::Global(_) | Cell::Storage(_) => {
                return Err(content("it holds a class or a bare storage, not only values".into()));
            }
        })
    }

    fn dict(
        &mut self,
        entries: &[(Id, Id)],
        path: &str,
        depth: usize,
    ) -> Result<Vec<(TorchValue, TorchValue)>, TorchZipError> {
        let mut out: Vec<(TorchValue, TorchValue)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (key, value) in entries {
            let key = match &self.heap.cells[*key] {
                Cell::Str(_) | Cell::Int(_) | Cell::Bool(_) => self.value(*key, path, depth + 1)?,
                _ => {
                    return Err(TorchZipError::Content {
                        detail: format!("a key of dict {path:?} is no str or int"),
                    });
                }
            };
            let name = match &key {
                TorchValue::Str(text) => format!("{text:?}"),
                other => format!("{other:?}"),
            };
            if !seen.insert(name.clone()) {
                return Err(TorchZipError::Content {
                    detail: format!("key {} is there twice", shown(&name)),
                });
            }
            let value = self.value(*value, &format!("{path}[{}]", shown(&name)), depth + 1)?;
            out.push((key, value));
        }
        Ok(out)
    }

    /// `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks)`.
    fn tensor(&mut self, args: &[Id; 6]) -> Result<TorchTensor, Fault> {
        let cells = args.map(|id| &self.heap.cells[id]);
        let [
            Cell::Storage(storage),
            Cell::Int(offset),
            Cell::Tuple(shape),
            Cell::Tuple(strides),
            Cell::Bool(_),
            Cell::Dict(hooks),
        ] = cells
        else {
            return Err(Fault::Tensor("its six arguments are not those of _rebuild_tensor_v2".into()));
        };
        if !hooks.is_empty() {
            return Err(Fault::Tensor("it has backward hooks".into()));
        }
        let view = View::check(storage, *offset, &self.ints(shape)?, &self.ints(strides)?)?;
        let size = storage.dtype.size() as u64;
        let bytes = view.elements.checked_mul(size).filter(|b| *b <= self.bytes_left);
        self.bytes_left -= bytes.ok_or_else(|| {
            Fault::Tensor(format!(
                "shape {:?} is more than the {} bytes read",
                view.shape, self.limits.tensor_bytes
            ))
        })?;
        let data = view.gather(self.storage(storage)?, storage.dtype.size());
        #[expect(clippy::cast_possible_wrap, reason = "checked to be i64 before")]
        let shape = view.shape.iter().map(|n| *n as i64).collect();
        Ok(TorchTensor { dtype: storage.dtype, shape, data })
    }

    fn ints(&self, ids: &[Id]) -> Result<Vec<i64>, Fault> {
        let int = |id: &Id| match &self.heap.cells[*id] {
            Cell::Int(value) => Ok(*value),
            _ => Err(Fault::Tensor("a size or stride is no int".into())),
        };
        ids.iter().map(int).collect()
    }

    /// Read once; two tensors may share one.
    fn storage(&mut self, storage: &Storage) -> Result<&[u8], Fault> {
        if !self.storages.contains_key(&storage.key) {
            let expected = storage.elements.checked_mul(storage.dtype.size() as u64);
            let expected = expected
                .ok_or_else(|| Fault::Tensor(format!("a storage of {} elements", storage.elements)))?;
            let bytes = self.archive.storage(&storage.key, expected).map_err(Fault::Other)?;
            self.storages.insert(storage.key.clone(), (storage.dtype, bytes));
        }
        let (dtype, bytes) = self.storages.get(&storage.key).expect("just inserted");
        if *dtype != storage.dtype || bytes.len() as u64 != storage.elements * storage.dtype.size() as u64 {
            return Err(Fault::Tensor(format!("storage {} is described in two ways", storage.key)));
        }
        Ok(bytes)
    }
}

/// What is wrong with a tensor whose name is not at hand.
enum Fault {
    Tensor(String),
    Other(TorchZipError),
}

fn named(fault: Fault, path: &str) -> TorchZipError {
    match fault {
        Fault::Tensor(detail) => TorchZipError::Tensor { name: path.to_owned(), detail },
        Fault::Other(error) => error,
    }
}

impl View {
    fn check(storage: &Storage, offset: i64, shape: &[i64], strides: &[i64]) -> Result<Self, Fault> {
        let wrong = || {
            Fault::Tensor(format!(
                "offset {offset}, shape {shape:?} and strides {strides:?} do not fit a storage of {} elements",
                storage.elements
            ))
        };
        if shape.len() != strides.len() || shape.len() > MAX_DIMS {
            return Err(wrong());
        }
        let unsigned = |v: &[i64]| v.iter().map(|n| u64::try_from(*n)).collect::<Result<Vec<_>, _>>();
        let (shape, strides) =
            (unsigned(shape).map_err(|_| wrong())?, unsigned(strides).map_err(|_| wrong())?);
        let offset = u64::try_from(offset).map_err(|_| wrong())?;
        let elements = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or_else(wrong)?;
        if elements == 0 {
            return Ok(Self { offset: 0, shape, strides, elements });
        }
        let last = shape.iter().zip(&strides).try_fold(offset, |at, (n, stride)| {
            (n - 1).checked_mul(*stride).and_then(|far| at.checked_add(far))
        });
        match last {
            Some(last) if last < storage.elements => Ok(Self { offset, shape, strides, elements }),
            _ => Err(wrong()),
        }
    }

    /// Elements in row-major order. Positions were checked to lie inside the storage, which is in memory.
    #[expect(clippy::cast_possible_truncation, reason = "positions lie inside a slice")]
    fn gather(&self, storage: &[u8], size: usize) -> Vec<u8> {
        if self.elements == 0 {
            return Vec::new();
        }
        let mut expected = 1;
        let dense = self.shape.iter().zip(&self.strides).rev().all(|(n, stride)| {
            let fits = *n == 1 || *stride == expected;
            expected *= n;
            fits
        });
        let start = self.offset as usize * size;
        if dense {
            return storage[start..start + self.elements as usize * size].to_vec();
        }
        let mut out = Vec::with_capacity(self.elements as usize * size);
        let mut index = vec![0u64; self.shape.len()];
        for _ in 0..self.elements {
            let at: u64 = self.offset + index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<u64>();
            out.extend_from_slice(&storage[at as usize * size..][..size]);
            for (i, n) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        out
    }
}
