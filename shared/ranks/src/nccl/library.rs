//! The functions of NCCL, CUDA and libtorch that are called, found when the program runs: builds need no CUDA, and the
//! NCCL that libtorch itself uses is the one that is taken.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::os::unix::{Library, Symbol};

use crate::RanksError;

pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclUint8` and `ncclFloat32`, `ncclSum` of nccl.h.
pub(super) const UINT8: c_int = 1;
pub(super) const FLOAT32: c_int = 7;
pub(super) const SUM: c_int = 0;
/// `cudaErrorNotReady`.
const NOT_READY: c_int = 600;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// The fields that `ncclConfig_t` had in NCCL 2.18; newer versions read the size and fill the rest.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once and are asked for their end, so that a rank that is gone cannot block them.
    pub(super) fn without_blocking() -> Self {
        let undefined = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21_805,
            blocking: 0,
            cga_cluster_size: undefined,
            min_ctas: undefined,
            max_ctas: undefined,
            net_name: std::ptr::null(),
            split_share: undefined,
        }
    }
}

/// `ncclComm_t`.
pub(super) type Handle = *mut c_void;
/// `cudaStream_t`.
pub(super) type Stream = *mut c_void;

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $symbol:literal = fn($($kind:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub(super) $field: unsafe extern "C" fn($($kind),*) -> $result,)*
            // Keeps the functions where they are.
            _library: Library,
        }

        impl $name {
            #[expect(unsafe_code, reason = "functions of a shared library have the type that its header gives them")]
            fn load(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the headers, and the library stays open as long as the pointers.
                unsafe {
                    $(
                        let symbol: Symbol<unsafe extern "C" fn($($kind),*) -> $result> = library.get($symbol)?;
                        let $field = *symbol;
                    )*
                    Ok(Self { $($field,)* _library: library })
                }
            }
        }
    };
}

functions! {
    /// nccl.h
    Nccl {
        version: b"ncclGetVersion\0" = fn(*mut c_int) -> c_int;
        unique_id: b"ncclGetUniqueId\0" = fn(*mut UniqueId) -> c_int;
        init: b"ncclCommInitRankConfig\0" = fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int;
        async_error: b"ncclCommGetAsyncError\0" = fn(Handle, *mut c_int) -> c_int;
        finalize: b"ncclCommFinalize\0" = fn(Handle) -> c_int;
        destroy: b"ncclCommDestroy\0" = fn(Handle) -> c_int;
        abort: b"ncclCommAbort\0" = fn(Handle) -> c_int;
        group_start: b"ncclGroupStart\0" = fn() -> c_int;
        group_end: b"ncclGroupEnd\0" = fn() -> c_int;
        all_reduce: b"ncclAllReduce\0" =
            fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> c_int;
        all_gather: b"ncclAllGather\0" = fn(*const c_void, *mut c_void, usize, c_int, Handle, Stream) -> c_int;
        error_text: b"ncclGetErrorString\0" = fn(c_int) -> *const c_char;
        last_error: b"ncclGetLastError\0" = fn(Handle) -> *const c_char;
    }
}

functions! {
    /// What libtorch and the CUDA runtime that it is linked with export.
    Cuda {
        current_stream: b"aoti_torch_get_current_cuda_stream\0" = fn(i32, *mut Stream) -> i32;
        set_device: b"cudaSetDevice\0" = fn(c_int) -> c_int;
        stream_query: b"cudaStreamQuery\0" = fn(Stream) -> c_int;
        error_text: b"cudaGetErrorString\0" = fn(c_int) -> *const c_char;
    }
}

impl Nccl {
    /// # Errors
    /// When the library is not there or too old.
    #[expect(unsafe_code, reason = "dlopen runs the initialisers of the library")]
    pub(super) fn open(name: &str) -> Result<Self, RanksError> {
        // SAFETY: NCCL's initialisers have no requirements; libtorch itself runs them.
        let library = unsafe { Library::new(name) };
        let library = library.map_err(|error| RanksError::Nccl(format!("{name} is not there: {error}")))?;
        Self::load(library)
            .map_err(|error| RanksError::Nccl(format!("{name} is too old, 2.18 or newer is needed: {error}")))
    }

    /// An error for a result other than success.
    pub(super) fn check(&self, call: &str, result: c_int) -> Result<(), RanksError> {
        match result {
            SUCCESS => Ok(()),
            _ => Err(RanksError::Nccl(format!("{call}: {}{}", self.text(result), self.details()))),
        }
    }

    #[expect(unsafe_code, reason = "a C call")]
    fn text(&self, result: c_int) -> String {
        // SAFETY: the function takes any number and gives a constant string.
        string(unsafe { (self.error_text)(result) })
    }

    #[expect(unsafe_code, reason = "a C call")]
    fn details(&self) -> String {
        // SAFETY: the argument is not used (nccl.h); the text is copied before another call.
        let text = string(unsafe { (self.last_error)(std::ptr::null_mut()) });
        if text.is_empty() { text } else { format!(" ({})", text.trim()) }
    }
}

impl Cuda {
    /// # Errors
    /// When this program's libtorch has no CUDA.
    pub(super) fn open() -> Result<Self, RanksError> {
        Self::load(Library::this())
            .map_err(|error| RanksError::Nccl(format!("libtorch in this program has no CUDA: {error}")))
    }

    /// Makes `device` current in this thread and gives the stream that libtorch uses there.
    ///
    /// # Errors
    /// When CUDA fails.
    #[expect(unsafe_code, reason = "C calls")]
    pub(super) fn stream(&self, device: i32) -> Result<Stream, RanksError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a plain number; the pointer is to a local variable.
        unsafe {
            self.check("cudaSetDevice", (self.set_device)(device))?;
            match (self.current_stream)(device, &raw mut stream) {
                0 => Ok(stream),
                _ => Err(RanksError::Nccl(format!("libtorch gives no current stream of device {device}"))),
            }
        }
    }

    /// Whether all work of the stream is done.
    ///
    /// # Errors
    /// When that work failed.
    #[expect(unsafe_code, reason = "a C call")]
    pub(super) fn done(&self, stream: Stream) -> Result<bool, RanksError> {
        // SAFETY: the stream belongs to libtorch, which never destroys its streams.
        match unsafe { (self.stream_query)(stream) } {
            NOT_READY => Ok(false),
            result => self.check("cudaStreamQuery", result).map(|()| true),
        }
    }

    #[expect(unsafe_code, reason = "a C call")]
    fn check(&self, call: &str, result: c_int) -> Result<(), RanksError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number and gives a constant string.
        Err(RanksError::Nccl(format!("{call}: {}", string(unsafe { (self.error_text)(result) }))))
    }
}

#[expect(unsafe_code, reason = "reads a C string")]
fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: NCCL and CUDA give strings that end in 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_or_another_is_named_with_the_reason() {
        let error =
            Nccl::open("libnccl-of-nobody.so.2").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("libnccl-of-nobody.so.2 is not there: "), "{error}");
        let error = Nccl::open("libc.so.6").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("libc.so.6 is too old") && error.contains("ncclGetVersion"), "{error}");
    }

    #[test]
    fn the_config_has_the_layout_of_version_2_18() {
        assert_eq!((size_of::<Config>(), size_of::<UniqueId>()), (48, 128));
    }
}
