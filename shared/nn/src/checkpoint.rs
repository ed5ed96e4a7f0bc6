use std::path::Path;

use tch::{Device, Kind, Tensor};
use weights::{Dtype, NameReport, SafetensorsFile, TensorSpec, WeightsError};

use crate::NnError;

/// A mapped checkpoint handing out tensors one by one on a device, so that a model is in memory once and not three times.
pub struct Checkpoint {
    file: SafetensorsFile,
    device: Device,
    kind: Kind,
}

impl Checkpoint {
    /// Opens a file that must hold exactly `wanted`; the error lists every missing, unexpected and wrong-shaped name.
    pub fn open(path: &Path, wanted: &[TensorSpec], device: Device, kind: Kind) -> Result<Self, NnError> {
        let checkpoint = Self::open_any(path, device, kind)?;
        let report = NameReport::compare(&checkpoint.file, wanted);
        if report.is_clean() {
            Ok(checkpoint)
        } else {
            Err(WeightsError::Names { path: path.to_path_buf(), report }.into())
        }
    }

    /// Opens a file whatever it holds.
    pub fn open_any(path: &Path, device: Device, kind: Kind) -> Result<Self, NnError> {
        Ok(Self { file: SafetensorsFile::open(path)?, device, kind })
    }

    pub fn file(&self) -> &SafetensorsFile {
        &self.file
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// One tensor, copied to the device in the checkpoint's kind.
    pub fn get(&self, name: &str) -> Result<Tensor, NnError> {
        Ok(tensor_from_file(&self.file, name)?.to_device(self.device).to_kind(self.kind))
    }

    /// Tensors `name(0..n)` stacked on a new first dimension.
    pub fn stack(&self, n: i64, name: impl Fn(i64) -> String) -> Result<Tensor, NnError> {
        let parts = (0..n).map(|i| self.get(&name(i))).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::stack(&parts, 0))
    }
}

/// One tensor in the file's own kind on the CPU.
pub fn tensor_from_file(file: &SafetensorsFile, name: &str) -> Result<Tensor, NnError> {
    let (entry, bytes) = file.tensor(name)?;
    Ok(Tensor::f_from_data_size(bytes, &entry.shape, kind_of(entry.dtype))?)
}

fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
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
    }
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
