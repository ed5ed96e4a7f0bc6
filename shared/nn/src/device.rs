//! Device, dtype and thread count from settings. There is no silent fall-back to the CPU.

use tch::{Cuda, Device, Kind};

use crate::{NnError, shim};

/// `cpu`, `cuda` (the first device) or `cuda:N`. Asking for CUDA where libtorch sees none is an error. Choosing CUDA
/// switches TF32 off ([`set_tf32`]) sums of bf16 products in bf16 ([`set_bf16_reduction`]) and cuDNN's
/// attention ([`set_cudnn_attention`]).
pub fn choose(name: &str) -> Result<Device, NnError> {
    if name == "cpu" {
        return Ok(Device::Cpu);
    }
    let index = match name.strip_prefix("cuda") {
        Some("") => 0,
        Some(rest) => match rest.strip_prefix(':').map(str::parse::<usize>) {
            Some(Ok(index)) => index,
            _ => return Err(NnError::UnknownDevice { name: name.into() }),
        },
        None => return Err(NnError::UnknownDevice { name: name.into() }),
    };
    let found = if Cuda::is_available() { Cuda::device_count() } else { 0 };
    if (index as i64) < found {
        set_tf32(false)?;
        set_bf16_reduction(false)?;
        set_cudnn_attention(false)?;
        Ok(Device::Cuda(index))
    } else {
        Err(NnError::NoCuda { name: name.into(), found })
    }
}

/// `f32` or `bf16`.
pub fn dtype(name: &str) -> Result<Kind, NnError> {
    match name {
        "f32" => Ok(Kind::Float),
        "bf16" => Ok(Kind::BFloat16),
        _ => Err(NnError::UnknownDtype { name: name.into() }),
    }
}

/// Whether f32 products and convolutions on CUDA may round their operands to TF32 (10 bits of mantissa). libtorch allows
/// it for cuDNN's convolutions unless told otherwise; Mimi's codes then flip near ties. For the whole process.
pub fn set_tf32(allow: bool) -> Result<(), NnError> {
    shim::set_tf32(allow)
}

/// Whether TF32 is allowed anywhere; see [`set_tf32`].
pub fn tf32() -> Result<bool, NnError> {
    shim::tf32()
}

/// Whether bf16 products on CUDA may sum partial results in bf16 (libtorch's default: yes, and the reference's). For the
/// whole process.
pub fn set_bf16_reduction(allow: bool) -> Result<(), NnError> {
    shim::set_bf16_reduction(allow)
}

/// Whether attention on CUDA may take cuDNN's kernels. They choose a plan at run time, another one under graph capture, so
/// that a replay gives other bits than eager execution. For the whole process.
pub fn set_cudnn_attention(allow: bool) -> Result<(), NnError> {
    shim::set_cudnn_attention(allow)
}

/// Version of the libtorch that this program was built against.
pub fn libtorch_version() -> &'static str {
    shim::torch_version()
}

/// Number of threads libtorch uses inside one operator on the CPU.
pub fn set_threads(count: usize) {
    tch::set_num_threads(count.max(1) as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_is_what_it_was_set_to() -> Result<(), NnError> {
        for allow in [true, false] {
            set_tf32(allow)?;
            assert_eq!(tf32()?, allow);
        }
        assert!(libtorch_version().starts_with(char::is_numeric), "{}", libtorch_version());
        set_bf16_reduction(true)
    }

    #[test]
    fn cuda_without_cuda_is_an_error_and_never_the_cpu() {
        if !Cuda::is_available() {
            assert!(matches!(choose("cuda"), Err(NnError::NoCuda { found: 0, .. })));
        }
        assert!(matches!(choose("cuda:99"), Err(NnError::NoCuda { .. })));
        assert!(matches!(choose("cpu"), Ok(Device::Cpu)));
        assert!(matches!(choose("gpu"), Err(NnError::UnknownDevice { .. })));
        assert!(matches!(choose("cuda:x"), Err(NnError::UnknownDevice { .. })));
    }
}
