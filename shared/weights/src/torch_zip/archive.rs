//! The container: entries of one folder, each read at most up to its announced size.

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use super::{TorchZipError, TorchZipLimits};

/// More entries than a file of plain tensors has.
const MAX_ENTRIES: usize = 65_536;

/// Every old file starts with a pickle of this number (`torch.serialization.MAGIC_NUMBER`).
const LEGACY_MAGIC: &[u8] = &[0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

pub(super) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// Folder of all entries, with its slash.
    prefix: String,
    limits: TorchZipLimits,
    /// Storage bytes that may still be read.
    left: u64,
}

fn damaged(error: &ZipError) -> TorchZipError {
    TorchZipError::NotTorchZip { detail: error.to_string() }
}

fn refuse_other_kinds(bytes: &[u8]) -> Result<(), TorchZipError> {
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(TorchZipError::LfsPointer);
    }
    let pickled = bytes.len() > 2 && bytes[0] == 0x80 && bytes[2..].starts_with(LEGACY_MAGIC);
    let tar = bytes.get(257..262) == Some(b"ustar");
    if pickled || tar {
        return Err(TorchZipError::Legacy);
    }
    if !bytes.starts_with(b"PK\x03\x04") {
        let head: String = bytes.iter().take(8).map(|b| b.escape_ascii().to_string()).collect();
        let detail = format!("{} bytes starting with \"{head}\"", bytes.len());
        return Err(TorchZipError::NotTorchZip { detail });
    }
    Ok(())
}

impl<'a> Archive<'a> {
    /// Reads the directory and checks that it is torch's, little-endian.
    pub(super) fn open(bytes: &'a [u8], limits: &TorchZipLimits) -> Result<Self, TorchZipError> {
        refuse_other_kinds(bytes)?;
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(|e| damaged(&e))?;
        let bad = |detail: String| TorchZipError::NotTorchZip { detail };
        if zip.len() > MAX_ENTRIES {
            return Err(bad(format!("it has {} entries", zip.len())));
        }
        let names: Vec<String> = zip
            .file_names()
            .map(|n| n.map(|n| n.into_owned()).map_err(|e| damaged(&e)))
            .collect::<Result<_, _>>()?;
        let mut pickles = names.iter().filter_map(|n| n.strip_suffix("data.pkl"));
        let prefix = pickles.next().ok_or_else(|| bad("it has no data.pkl".into()))?.to_owned();
        if prefix.matches('/').count() != 1 || !prefix.ends_with('/') || pickles.next().is_some() {
            return Err(bad("it has not one data.pkl in one folder".into()));
        }
        if let Some(name) = names.iter().find(|n| !n.starts_with(&prefix)) {
            return Err(bad(format!("{:?} lies outside {prefix:?}", shown(name))));
        }
        let mut archive = Self { zip, prefix, limits: *limits, left: limits.tensor_bytes };
        archive.check_byte_order()?;
        Ok(archive)
    }

    /// Files of torch before 2.0 do not say; they are little-endian on every machine they are found on.
    fn check_byte_order(&mut self) -> Result<(), TorchZipError> {
        let name = format!("{}byteorder", self.prefix);
        if self.zip.index_for_name(&name).is_none() {
            return Ok(());
        }
        match self.entry("byteorder", "its byte order", 16)?.as_slice() {
            b"little" => Ok(()),
            other => Err(TorchZipError::ByteOrder { found: String::from_utf8_lossy(other).into_owned() }),
        }
    }

    pub(super) fn pickle(&mut self) -> Result<Vec<u8>, TorchZipError> {
        self.entry("data.pkl", "its pickle", self.limits.pickle_bytes)
    }

    /// The bytes of a storage. `expected` is what its description says; anything else is an error.
    pub(super) fn storage(&mut self, key: &str, expected: u64) -> Result<Vec<u8>, TorchZipError> {
        if expected > self.left {
            let (found, limit) = (expected, self.left);
            return Err(TorchZipError::TooLarge { what: "a storage", found, limit });
        }
        let bytes = self.entry(&format!("data/{key}"), "a storage", expected)?;
        let found = bytes.len() as u64;
        if found != expected {
            let detail = format!("storage {:?} has {found} bytes, {expected} were announced", shown(key));
            return Err(TorchZipError::NotTorchZip { detail });
        }
        self.left -= found;
        Ok(bytes)
    }

    /// One entry whole, checked against its checksum; longer than `limit` is an error before anything is unpacked.
    fn entry(&mut self, name: &str, what: &'static str, limit: u64) -> Result<Vec<u8>, TorchZipError> {
        let file = self.zip.by_name(&format!("{}{name}", self.prefix)).map_err(|e| match e {
            ZipError::FileNotFound => {
                TorchZipError::NotTorchZip { detail: format!("it has no entry {:?}", shown(name)) }
            }
            other => damaged(&other),
        })?;
        let found = file.size();
        if found > limit {
            return Err(TorchZipError::TooLarge { what, found, limit });
        }
        // The announced size may be wrong: grow with what is really there, and read no more than the limit.
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|e| TorchZipError::NotTorchZip { detail: format!("entry {:?}: {e}", shown(name)) })?;
        if bytes.len() as u64 > limit {
            return Err(TorchZipError::TooLarge { what, found: bytes.len() as u64, limit });
        }
        Ok(bytes)
    }
}

/// Names come from the file; messages show their beginning.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}
