//! Files written by `torch.save`, read without torch and without running anything they contain.
//!
//! The format (torch 1.6 and later) is a zip archive: `<name>/data.pkl` holds a pickle of protocol 2, `<name>/data/<key>` the
//! raw elements of one storage each, `<name>/byteorder` their byte order. A general unpickler calls whatever function the
//! file names. This one is an interpreter of the few opcodes that plain data needs ([`pickle`]); every function it knows is
//! a variant of an enum here, so a file that names any other is refused by that name. Tensors tagged `cuda:0` are read like
//! all others: the device of the process that wrote them does not matter.
//!
//! Read so: `dict`, `collections.OrderedDict`, `str`, `int`, `bool`, `tuple`, tensors of the ten element types of [`Dtype`].

mod archive;
mod error;
mod pickle;
mod tensor;

use std::path::Path;

pub use error::TorchZipError;
pub use tensor::TorchTensor;

use crate::Dtype;

/// How much of a file is read before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorchZipLimits {
    /// Bytes of the whole file.
    pub file_bytes: u64,
    /// Bytes of all storages and, separately, of all tensors made of them.
    pub tensor_bytes: u64,
    /// Bytes of the pickle.
    pub pickle_bytes: u64,
    /// Values (dicts, strings, numbers, tensors) in the result.
    pub values: usize,
}

impl Default for TorchZipLimits {
    /// Enough for a voice prompt of a minute at the published width (6 MB), far from what would fill a server.
    fn default() -> Self {
        Self { file_bytes: 256 << 20, tensor_bytes: 256 << 20, pickle_bytes: 1 << 20, values: 100_000 }
    }
}

/// A value of the pickle.
#[derive(Debug, Clone, PartialEq)]
pub enum TorchValue {
    /// An integer.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// Text.
    Str(String),
    /// A tuple.
    Tuple(Vec<TorchValue>),
    /// A dict or an `OrderedDict`, in the order of insertion; keys are unique.
    Dict(Vec<(TorchValue, TorchValue)>),
    /// A tensor.
    Tensor(TorchTensor),
}

impl TorchValue {
    /// What it is, for messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "an int",
            Self::Bool(_) => "a bool",
            Self::Str(_) => "a str",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Tensor(_) => "a tensor",
        }
    }

    /// The entries of a dict from names to tensors, in the file's order.
    ///
    /// # Errors
    /// When this is no dict, a key no text, or a value no tensor.
    pub fn into_tensors(self) -> Result<Vec<(String, TorchTensor)>, TorchZipError> {
        let kind = self.kind();
        let Self::Dict(entries) = self else {
            return Err(TorchZipError::Content { detail: format!("it holds {kind}, not a dict of tensors") });
        };
        let pair = |(key, value): (Self, Self)| match (key, value) {
            (Self::Str(name), Self::Tensor(tensor)) => Ok((name, tensor)),
            (Self::Str(name), other) => Err(format!("entry {name:?} is {}, not a tensor", other.kind())),
            (other, _) => Err(format!("a key of the dict is {}, not a str", other.kind())),
        };
        entries
            .into_iter()
            .map(pair)
            .collect::<Result<_, _>>()
            .map_err(|detail| TorchZipError::Content { detail })
    }
}

/// Reads a file; see [`parse_torch_zip`].
///
/// # Errors
/// When the file cannot be read, is larger than the limit, or [`parse_torch_zip`] refuses it.
pub fn read_torch_zip(path: &Path, limits: &TorchZipLimits) -> Result<TorchValue, TorchZipError> {
    let io = |source| TorchZipError::Io { path: path.into(), source };
    let found = std::fs::metadata(path).map_err(io)?.len();
    if found > limits.file_bytes {
        return Err(TorchZipError::TooLarge { what: "the file", found, limit: limits.file_bytes });
    }
    parse_torch_zip(&std::fs::read(path).map_err(io)?, limits)
}

/// Reads the bytes of a file that `torch.save` wrote. Never runs anything named in it; never panics, whatever the bytes.
///
/// # Errors
/// Its own variant for each reason: not such a file, another version of the format, an opcode or a global that is not read,
/// a tensor that lies outside its storage, a limit.
pub fn parse_torch_zip(bytes: &[u8], limits: &TorchZipLimits) -> Result<TorchValue, TorchZipError> {
    if bytes.len() as u64 > limits.file_bytes {
        let found = bytes.len() as u64;
        return Err(TorchZipError::TooLarge { what: "the file", found, limit: limits.file_bytes });
    }
    let mut archive = archive::Archive::open(bytes, limits)?;
    let program = archive.pickle()?;
    let heap = pickle::run(&program)?;
    tensor::Builder::new(&heap, &mut archive, limits).build()
}

/// Element types by the name of torch's storage class.
fn storage_dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "DoubleStorage" => Dtype::F64,
        "FloatStorage" => Dtype::F32,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" => Dtype::U8,
        "BoolStorage" => Dtype::BOOL,
        _ => return None,
    })
}
