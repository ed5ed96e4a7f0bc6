use std::path::Path;

use tch::{Device, Kind, Tensor};
use weights::{CanonicalReader, CheckpointSource, Dtype, Part, SafetensorsFile, TensorSpec, WeightsError};

use crate::NnError;

/// A mapped checkpoint in any form and spelling that [`CanonicalReader`] knows, handing out tensors one by one on a device
/// under the inventory's names. A tensor's pages are given back once it is on the device, so host memory holds one part
/// at a time (the largest of the 7B: 262 MB) and the model itself only where it was asked for.
pub struct Checkpoint {
    reader: CanonicalReader,
    device: Device,
    kind: Kind,
}

impl Checkpoint {
    /// Opens a checkpoint that must hold exactly `wanted`; the error lists every missing, unexpected and wrong-shaped name.
    pub fn open(path: &Path, wanted: &[TensorSpec], device: Device, kind: Kind) -> Result<Self, NnError> {
        Ok(Self { reader: CanonicalReader::open(path, wanted)?, device, kind })
    }

    /// Opens a checkpoint whatever it holds, under the names it uses.
    pub fn open_any(path: &Path, device: Device, kind: Kind) -> Result<Self, NnError> {
        Ok(Self { reader: CanonicalReader::any(CheckpointSource::open(path)?), device, kind })
    }

    /// The files below.
    pub fn file(&self) -> &CheckpointSource {
        self.reader.source()
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// One tensor, copied to the device in the checkpoint's kind.
    pub fn get(&self, name: &str) -> Result<Tensor, NnError> {
        let (shape, _) = self.reader.entry(name)?;
        let path = self.reader.source().path();
        let parts = self.reader.parts(name)?;
        let tensor = match parts.as_slice() {
            [one] => part_tensor(one, path)?.to_device(self.device).to_kind(self.kind),
            parts => {
                let whole = Tensor::f_empty(shape, (self.kind, self.device))?;
                let mut row = 0;
                for part in parts {
                    let rows = part.shape.first().copied().unwrap_or(1);
                    whole.f_narrow(0, row, rows)?.f_copy_(&part_tensor(part, path)?)?;
                    row += rows;
                }
                whole
            }
        };
        drop(parts);
        self.reader.release(name);
        Ok(tensor)
    }

    /// Tensors `name(0..n)` stacked on a new first dimension.
    pub fn stack(&self, n: i64, name: impl Fn(i64) -> String) -> Result<Tensor, NnError> {
        let parts = (0..n).map(|i| self.get(&name(i))).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::stack(&parts, 0))
    }
}

fn part_tensor(part: &Part<'_>, path: &Path) -> Result<Tensor, NnError> {
    let kind = kind_of(part.dtype).ok_or_else(|| WeightsError::UnusableDtype {
        path: path.into(),
        name: part.source.unwrap_or_default().into(),
        dtype: part.dtype.name(),
    })?;
    Ok(Tensor::f_from_data_size(&part.bytes, &part.shape, kind)?)
}

/// One tensor in the file's own kind on the CPU.
pub fn tensor_from_file(file: &SafetensorsFile, name: &str) -> Result<Tensor, NnError> {
    let (entry, bytes) = file.tensor(name)?;
    let kind = kind_of(entry.dtype).ok_or_else(|| WeightsError::UnusableDtype {
        path: file.path().into(),
        name: name.into(),
        dtype: entry.dtype.name(),
    })?;
    Ok(Tensor::f_from_data_size(bytes, &entry.shape, kind)?)
}

/// The tensor library's name of a file type; `None` where it has no such type.
pub fn kind_of(dtype: Dtype) -> Option<Kind> {
    Some(match dtype {
        Dtype::F64 => Kind::Double,
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::I64 => Kind::Int64,
        Dtype::I32 => Kind::Int,
        Dtype::I16 => Kind::Int16,
        Dtype::I8 => Kind::Int8,
        Dtype::U8 => Kind::Uint8,
        Dtype::BOOL => Kind::Bool,
        Dtype::F8_E4M3 => Kind::Float8e4m3fn,
        Dtype::F8_E5M2 => Kind::Float8e5m2,
        Dtype::U64 | Dtype::U32 | Dtype::U16 => return None,
    })
}

/// File type of a tensor to be written.
pub fn dtype_of(tensor: &Tensor) -> Result<Dtype, NnError> {
    Ok(match tensor.kind() {
        Kind::Float => Dtype::F32,
        Kind::Half => Dtype::F16,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Int64 => Dtype::I64,
        Kind::Int => Dtype::I32,
        Kind::Uint8 => Dtype::U8,
        kind => return Err(NnError::UnsupportedKind { kind }),
    })
}

/// Little-endian, row-major bytes of a tensor, wherever it lies.
pub fn tensor_bytes(tensor: &Tensor) -> Result<Vec<u8>, NnError> {
    let size = dtype_of(tensor)?.size();
    let tensor = tensor.detach().to_device(Device::Cpu).contiguous();
    let count = tensor.numel();
    let mut bytes = vec![0u8; count * size];
    if count > 0 {
        tensor.f_copy_data_u8(&mut bytes, count)?;
    }
    Ok(bytes)
}
