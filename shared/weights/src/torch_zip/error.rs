use std::path::PathBuf;

/// Why a file of `torch.save` is refused.
#[derive(Debug, thiserror::Error)]
pub enum TorchZipError {
    /// The disk refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A pointer that git-lfs left in place of the file.
    #[error("this is a git-lfs pointer, not the file itself; fetch it with git lfs")]
    LfsPointer,
    /// Written by torch before 1.6 or with `_use_new_zipfile_serialization=False`.
    #[error("this is a torch file of the old kind (not zip); load it with torch and save it again")]
    Legacy,
    /// No zip archive, a damaged one, or one without torch's entries.
    #[error("this is not a zip file of torch.save: {detail}")]
    NotTorchZip {
        /// What is wrong.
        detail: String,
    },
    /// Written on a big-endian machine.
    #[error("its byte order is {found:?}; only \"little\" is read")]
    ByteOrder {
        /// What the file says.
        found: String,
    },
    /// Larger than the caller takes.
    #[error("{what} has {found} bytes, at most {limit} are read")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Bytes found or announced.
        found: u64,
        /// Bytes accepted.
        limit: u64,
    },
    /// A pickle opcode that plain data does not need.
    #[error("its pickle uses {opcode} at byte {at}, which is not read")]
    Opcode {
        /// Name of the opcode, or its number.
        opcode: String,
        /// Where in the pickle.
        at: usize,
    },
    /// A function or class that is not one of the few known ones. It was not run.
    #[error("its pickle names {global}, which is not read and was not run")]
    Global {
        /// Module and name.
        global: String,
    },
    /// The pickle does not follow its own rules.
    #[error("its pickle is damaged at byte {at}: {detail}")]
    Pickle {
        /// Where.
        at: usize,
        /// What is wrong.
        detail: String,
    },
    /// A tensor whose description does not fit its storage.
    #[error("tensor {name}: {detail}")]
    Tensor {
        /// Path of the tensor inside the file.
        name: String,
        /// What is wrong.
        detail: String,
    },
    /// The content is something else than the caller wants.
    #[error("{detail}")]
    Content {
        /// What it is.
        detail: String,
    },
}
