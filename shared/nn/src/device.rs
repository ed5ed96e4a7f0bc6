//! Device, dtype and thread count from settings. There is no silent fall-back to the CPU.

use tch::{Cuda, Device, Kind};

use crate::NnError;

/// `cpu`, `cuda` (the first device) or `cuda:N`. Asking for CUDA where libtorch sees none is an error.
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

/// Number of threads libtorch uses inside one operator on the CPU.
pub fn set_threads(count: usize) {
    tch::set_num_threads(count.max(1) as i32);
}

#[cfg(test)]
mod tests {
    use super::*;

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
