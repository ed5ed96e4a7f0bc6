//! Tensors of a voice file on their way in and out: shapes, types and values are checked here.

use safetensors::View;
use safetensors::tensor::TensorView;

use super::{
    CODEBOOKS, MAX_DIM, MAX_FRAMES, MAX_ID, MIN_FRAMES, RING_ROWS, Result, VOICE_STREAMS, VoiceFileError,
};
use crate::Dtype;
use crate::torch_zip::TorchTensor;

pub(super) fn le<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|v| bytes(*v)).collect()
}

/// A tensor of either container.
pub(super) struct Raw<'a> {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<i64>,
    pub(super) data: std::borrow::Cow<'a, [u8]>,
}

impl<'a> Raw<'a> {
    pub(super) fn of(name: &'static str, tensor: &'a TorchTensor) -> Self {
        let data = tensor.data.as_slice().into();
        Self { name, dtype: tensor.dtype, shape: tensor.shape.clone(), data }
    }

    pub(super) fn view(name: &'static str, view: &TensorView<'a>) -> Result<Self> {
        let wanted = "F32, BF16, F16, I32 or I64";
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => Dtype::F32,
            safetensors::Dtype::BF16 => Dtype::BF16,
            safetensors::Dtype::F16 => Dtype::F16,
            safetensors::Dtype::I32 => Dtype::I32,
            safetensors::Dtype::I64 => Dtype::I64,
            other => return Err(VoiceFileError::Dtype { name, found: format!("{other:?}"), wanted }),
        };
        let shape = view.shape().iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect();
        Ok(Self { name, dtype, shape, data: view.data().into() })
    }

    fn shape_error(&self, wanted: impl Into<String>) -> VoiceFileError {
        VoiceFileError::Shape { name: self.name, found: self.shape.clone(), wanted: wanted.into() }
    }

    fn want(&self, dtype: Dtype) -> Result<()> {
        if self.dtype == dtype {
            return Ok(());
        }
        let (found, wanted) = (self.dtype.name().into(), dtype.name());
        Err(VoiceFileError::Dtype { name: self.name, found, wanted })
    }

    /// Rows and width of `[F-1, 1, 1, dim]` or `[F-1, dim]`.
    pub(super) fn embedding_shape(&self) -> Result<(usize, usize)> {
        let (rows, dim) = match self.shape[..] {
            [rows, 1, 1, dim] | [rows, dim] => (usize::try_from(rows), usize::try_from(dim)),
            _ => return Err(self.shape_error("[frames - 1, 1, 1, dim]")),
        };
        match (rows, dim) {
            (Ok(rows), Ok(dim))
                if (MIN_FRAMES - 1..MAX_FRAMES).contains(&rows) && (1..=MAX_DIM).contains(&dim) =>
            {
                Ok((rows, dim))
            }
            _ => Err(self.shape_error(format!(
                "{} to {} rows of 1 to {MAX_DIM} values",
                MIN_FRAMES - 1,
                MAX_FRAMES - 1
            ))),
        }
    }

    pub(super) fn check_finite(&self) -> Result<()> {
        // The exponent is all ones in NaN and infinity.
        let bad = match self.dtype {
            Dtype::BF16 => self.halves().position(|h| h & 0x7f80 == 0x7f80),
            Dtype::F16 => self.halves().position(|h| h & 0x7c00 == 0x7c00),
            _ => self.floats().position(|f| !f.is_finite()),
        };
        match bad {
            None => Ok(()),
            Some(index) => Err(VoiceFileError::Value {
                name: self.name,
                index,
                found: "not a finite number".into(),
                wanted: "a finite number".into(),
            }),
        }
    }

    fn halves(&self) -> impl Iterator<Item = u16> {
        self.data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn floats(&self) -> impl Iterator<Item = f32> {
        self.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// `[1, 17, 4]` or `[17, 4]` i64.
    pub(super) fn ring(&self) -> Result<[[i64; RING_ROWS]; VOICE_STREAMS]> {
        if !matches!(self.shape[..], [1, 17, 4] | [17, 4]) {
            return Err(self.shape_error("[1, 17, 4]"));
        }
        self.want(Dtype::I64)?;
        let mut ring = [[0; RING_ROWS]; VOICE_STREAMS];
        for (to, from) in ring.as_flattened_mut().iter_mut().zip(self.data.chunks_exact(8)) {
            *to = i64::from_le_bytes(from.try_into().expect("chunks of eight"));
        }
        Ok(ring)
    }

    pub(super) fn samples(&self) -> Result<Vec<f32>> {
        self.want(Dtype::F32)?;
        match self.shape[..] {
            [n] if n > 0 && n <= (MAX_FRAMES * 1920) as i64 => {}
            _ => return Err(self.shape_error("[N], at most one minute at 24 kHz")),
        }
        self.check_finite()?;
        Ok(self.floats().collect())
    }

    /// `[8, F]` i32 as frames.
    pub(super) fn codes(&self) -> Result<Vec<[i32; CODEBOOKS]>> {
        self.want(Dtype::I32)?;
        let frames = match self.shape[..] {
            [8, f] if f > 0 && f <= MAX_FRAMES as i64 => usize::try_from(f).unwrap_or(0),
            _ => return Err(self.shape_error("[8, F], F at most 750")),
        };
        let flat: Vec<i32> =
            self.data.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        if let Some(index) = flat.iter().position(|c| !(0..MAX_ID).contains(&i64::from(*c))) {
            let (found, wanted) = (flat[index].to_string(), format!("0..{MAX_ID}"));
            return Err(VoiceFileError::Value { name: "codes", index, found, wanted });
        }
        Ok((0..frames).map(|f| std::array::from_fn(|k| flat[k * frames + f])).collect())
    }
}

/// A tensor to be written.
pub(super) struct Owned {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Owned {
    pub(super) fn new(dtype: Dtype, shape: Vec<usize>, data: Vec<u8>) -> Self {
        Self { dtype, shape, data }
    }
}

impl View for Owned {
    fn dtype(&self) -> safetensors::Dtype {
        match self.dtype {
            Dtype::BF16 => safetensors::Dtype::BF16,
            Dtype::F16 => safetensors::Dtype::F16,
            Dtype::I32 => safetensors::Dtype::I32,
            Dtype::I64 => safetensors::Dtype::I64,
            _ => safetensors::Dtype::F32,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.data.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}
