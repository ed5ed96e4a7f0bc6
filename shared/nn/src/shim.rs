//! Foreign functions of `cuda/`, each behind a safe one. Device numbers have been checked by the callers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use tch::Tensor;

use crate::NnError;
use crate::graph::MemoryStats;

/// A graph in the making or made; owned by the C++ side until [`Graph::free`] or [`Graph::abandon`].
#[repr(C)]
pub(crate) struct RawGraph {
    opaque: [u8; 0],
}

/// Compiled kernels; never freed.
#[repr(C)]
pub(crate) struct RawKernels {
    opaque: [u8; 0],
}

/// `NnMemory` of `cuda/shim.h`.
#[repr(C)]
#[derive(Default)]
struct MemoryFigures {
    allocated: u64,
    allocated_peak: u64,
    reserved: u64,
    reserved_peak: u64,
    free: u64,
    total: u64,
}

// SAFETY: the signatures are those of cuda/shim.h, which build.rs compiles into this crate.
#[expect(unsafe_code, reason = "libtorch's C++ API through our own C functions")]
unsafe extern "C" {
    fn nn_error_free(message: *mut c_char);
    fn nn_torch_version() -> *const c_char;
    fn nn_tf32_set(allow: bool) -> *mut c_char;
    fn nn_tf32_get(allowed: *mut bool) -> *mut c_char;
    fn nn_bf16_reduction_set(allow: bool) -> *mut c_char;
    fn nn_cudnn_attention_set(allow: bool) -> *mut c_char;
    fn nn_pin(tensor: *const c_void, out: *mut *mut c_void) -> *mut c_char;
    fn nn_copy_async(into: *const c_void, from: *const c_void) -> *mut c_char;
    fn nn_graph_begin(device: c_int, pool: *mut RawGraph, out: *mut *mut RawGraph) -> *mut c_char;
    fn nn_graph_end(graph: *mut RawGraph) -> *mut c_char;
    fn nn_graph_abandon(graph: *mut RawGraph);
    fn nn_graph_replay(graph: *mut RawGraph) -> *mut c_char;
    fn nn_graph_free(graph: *mut RawGraph);
    fn nn_cuda_synchronize(device: c_int) -> *mut c_char;
    fn nn_cuda_memory(device: c_int, out: *mut MemoryFigures) -> *mut c_char;
    fn nn_cuda_reset_peak(device: c_int) -> *mut c_char;
    fn nn_cuda_empty_cache(device: c_int) -> *mut c_char;
    fn nn_cuda_name(device: c_int, out: *mut c_char, size: usize) -> *mut c_char;
    fn nn_kernels_load(device: c_int, source: *const c_char, out: *mut *mut RawKernels) -> *mut c_char;
    fn nn_kernel_launch(
        kernels: *mut RawKernels,
        name: *const c_char,
        grid: *const u32,
        block: u32,
        shared: u32,
        tensors: *const *const c_void,
        tensor_count: usize,
        numbers: *const i64,
        number_count: usize,
        real: f32,
    ) -> *mut c_char;
}

/// The message that a shim function returned, as an error; takes the message over.
#[expect(unsafe_code, reason = "reads and frees a C string")]
fn check(what: &'static str, message: *mut c_char) -> Result<(), NnError> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a shim function returned it, so it is a terminated string in memory of its own, used nowhere else.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: as above, and it is not used again.
    unsafe { nn_error_free(message) };
    // libtorch appends a backtrace after the first line; the line says what happened.
    let message = text.lines().next().unwrap_or_default().to_string();
    Err(NnError::Cuda { what, message })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn torch_version() -> &'static str {
    // SAFETY: returns a string constant of the shim.
    unsafe { CStr::from_ptr(nn_torch_version()) }.to_str().unwrap_or("unknown")
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn set_tf32(allow: bool) -> Result<(), NnError> {
    // SAFETY: takes a value, touches libtorch's own context only.
    check("the TF32 switch", unsafe { nn_tf32_set(allow) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn tf32() -> Result<bool, NnError> {
    let mut allowed = false;
    // SAFETY: writes one bool through a pointer that lives during the call.
    check("the TF32 switch", unsafe { nn_tf32_get(&mut allowed) })?;
    Ok(allowed)
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn set_bf16_reduction(allow: bool) -> Result<(), NnError> {
    // SAFETY: takes a value, touches libtorch's own context only.
    check("the bf16 reduction switch", unsafe { nn_bf16_reduction_set(allow) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn set_cudnn_attention(allow: bool) -> Result<(), NnError> {
    // SAFETY: takes a value, touches libtorch's own context only.
    check("the cuDNN attention switch", unsafe { nn_cudnn_attention_set(allow) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn pin(tensor: &Tensor) -> Result<Tensor, NnError> {
    let mut out: *mut c_void = null_mut();
    // SAFETY: reads a live handle and writes one pointer through a pointer that lives during the call.
    check("locking host memory", unsafe { nn_pin(tensor.as_ptr().cast(), &mut out) })?;
    // SAFETY: without an error `out` is a new handle that nobody else owns.
    Ok(unsafe { Tensor::from_ptr(out.cast()) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn copy_async(into: &Tensor, from: &Tensor) -> Result<(), NnError> {
    // SAFETY: two live handles; libtorch checks their shapes and devices.
    check("copying to the device", unsafe { nn_copy_async(into.as_ptr().cast(), from.as_ptr().cast()) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn synchronize(device: i32) -> Result<(), NnError> {
    // SAFETY: takes a value.
    check("waiting for the device", unsafe { nn_cuda_synchronize(device) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn memory(device: i32) -> Result<MemoryStats, NnError> {
    let mut figures = MemoryFigures::default();
    // SAFETY: writes one struct of the declared layout through a pointer that lives during the call.
    check("reading memory figures", unsafe { nn_cuda_memory(device, &mut figures) })?;
    Ok(MemoryStats {
        allocated: figures.allocated,
        allocated_peak: figures.allocated_peak,
        reserved: figures.reserved,
        reserved_peak: figures.reserved_peak,
        free: figures.free,
        total: figures.total,
    })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn reset_peak(device: i32) -> Result<(), NnError> {
    // SAFETY: takes a value.
    check("resetting memory peaks", unsafe { nn_cuda_reset_peak(device) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn empty_cache(device: i32) -> Result<(), NnError> {
    // SAFETY: takes a value; only memory that no tensor uses is given back.
    check("giving cached memory back", unsafe { nn_cuda_empty_cache(device) })
}

#[expect(unsafe_code, reason = "foreign function")]
pub(crate) fn name(device: i32) -> Result<String, NnError> {
    let mut text = [0_u8; 256];
    // SAFETY: writes at most `size` bytes, the last of them zero, into a buffer that lives during the call.
    let failed = unsafe { nn_cuda_name(device, text.as_mut_ptr().cast(), text.len()) };
    check("reading the device's name", failed)?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// The only handle to a C++ graph.
#[derive(Debug)]
pub(crate) struct Graph(NonNull<RawGraph>);

// SAFETY: a graph that has been captured belongs to no thread: CUDA lets any thread launch and destroy it, and this is its
// only handle. While it captures, it stays inside `CudaGraph::capture`. It is not Sync: two launches at once are not allowed.
#[expect(unsafe_code, reason = "the raw pointer hides what the C++ side allows")]
unsafe impl Send for Graph {}

#[expect(unsafe_code, reason = "foreign functions on the graph's pointer")]
impl Graph {
    /// Starts recording on the calling thread.
    pub(crate) fn begin(device: i32, pool: Option<&Graph>) -> Result<Self, NnError> {
        let pool = pool.map_or(null_mut(), |graph| graph.0.as_ptr());
        let mut out = null_mut();
        // SAFETY: `pool` is null or a live graph, only read from; `out` lives during the call.
        check("starting a CUDA graph", unsafe { nn_graph_begin(device, pool, &mut out) })?;
        Ok(Self(NonNull::new(out).expect("the shim sets it when it reports no error")))
    }

    /// Ends recording; the graph is usable only if this succeeds, and is to be freed in any case.
    pub(crate) fn end(&self) -> Result<(), NnError> {
        // SAFETY: live, and recording since `begin`.
        check("capturing a CUDA graph", unsafe { nn_graph_end(self.0.as_ptr()) })
    }

    /// Ends recording and drops what was recorded.
    pub(crate) fn abandon(self) {
        // SAFETY: live, recording since `begin`, and not used again.
        unsafe { nn_graph_abandon(self.0.as_ptr()) }
    }

    pub(crate) fn replay(&self) -> Result<(), NnError> {
        // SAFETY: live.
        check("replaying a CUDA graph", unsafe { nn_graph_replay(self.0.as_ptr()) })
    }

    pub(crate) fn free(&mut self) {
        // SAFETY: live; called once, from the owner's drop.
        unsafe { nn_graph_free(self.0.as_ptr()) }
    }
}

/// Compiled kernels of one device, for the life of the process.
#[derive(Debug)]
pub(crate) struct Kernels(NonNull<RawKernels>);

// SAFETY: the C++ side locks its table of functions; launching is allowed from any thread.
#[expect(unsafe_code, reason = "the raw pointer hides what the C++ side allows")]
unsafe impl Send for Kernels {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "the raw pointer hides what the C++ side allows")]
unsafe impl Sync for Kernels {}

#[expect(unsafe_code, reason = "foreign functions")]
impl Kernels {
    /// Compiles CUDA C++ for a device.
    pub(crate) fn load(device: i32, source: &str) -> Result<Self, NnError> {
        let source = std::ffi::CString::new(source).expect("a source without NUL");
        let mut out = null_mut();
        // SAFETY: a terminated string and a pointer that live during the call.
        check("compiling kernels", unsafe { nn_kernels_load(device, source.as_ptr(), &mut out) })?;
        Ok(Self(NonNull::new(out).expect("the shim sets it when it reports no error")))
    }

    /// Queues one kernel on the current stream; see `cuda/shim.h` for its parameters.
    pub(crate) fn launch(
        &self,
        name: &str,
        grid: [i64; 3],
        block: i64,
        tensors: &[&Tensor],
        numbers: &[i64],
        real: f32,
    ) -> Result<(), NnError> {
        let name = std::ffi::CString::new(name).expect("a name without NUL");
        let grid = grid.map(|n| n as u32);
        let handles: Vec<*const c_void> = tensors.iter().map(|t| t.as_ptr().cast()).collect();
        // SAFETY: live handles, arrays of the given lengths, and a kernel of our own that takes exactly these parameters;
        // callers pass tensors of the sizes that it reads and writes.
        check("a kernel", unsafe {
            nn_kernel_launch(
                self.0.as_ptr(),
                name.as_ptr(),
                grid.as_ptr(),
                block as u32,
                0,
                handles.as_ptr(),
                handles.len(),
                numbers.as_ptr(),
                numbers.len(),
                real,
            )
        })
    }
}
