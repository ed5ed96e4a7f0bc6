//! What a file is when it is not what was wanted.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::WeightsError;

const LFS: &[u8] = b"version https://git-lfs";
/// First bytes of a pickle as torch wrote it before zip files.
const PICKLE: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];
/// As many bytes as tell every kind apart.
const HEAD: usize = 1024;

/// Fails when `path` is a directory, empty, a git-lfs pointer or an error page instead of a file of any binary kind: for
/// tokenizers and voice files as for weights.
pub fn check_downloaded(path: &Path) -> Result<(), WeightsError> {
    let mut head = Vec::new();
    open(path)?.take(HEAD as u64).read_to_end(&mut head).map_err(WeightsError::io("read", path))?;
    if head.is_empty() {
        return Err(WeightsError::Empty { path: path.into() });
    }
    match pointer(path, &head).or_else(|| document(path, &head)) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Opens a file; a directory, which would open too, is an error.
pub(crate) fn open(path: &Path) -> Result<File, WeightsError> {
    let file = File::open(path).map_err(WeightsError::io("open", path))?;
    if file.metadata().map_err(WeightsError::io("stat", path))?.is_dir() {
        return Err(WeightsError::Directory { path: path.into() });
    }
    Ok(file)
}

/// The known kind of a file whose start is no safetensors header.
pub(crate) fn other_kind(path: &Path, bytes: &[u8]) -> Option<WeightsError> {
    let head = &bytes[..bytes.len().min(HEAD)];
    pointer(path, head).or_else(|| document(path, head)).or_else(|| binary(path, head))
}

fn pointer(path: &Path, head: &[u8]) -> Option<WeightsError> {
    // A pointer cut after its first word is one too.
    let cut = (4..LFS.len()).contains(&head.len()) && LFS.starts_with(head);
    (cut || head.starts_with(LFS)).then(|| WeightsError::LfsPointer { path: path.into() })
}

fn document(path: &Path, head: &[u8]) -> Option<WeightsError> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let lower: Vec<u8> = text.iter().take(64).map(u8::to_ascii_lowercase).collect();
    let kind =
        if [&b"<!doctype"[..], b"<html", b"<?xml", b"<head", b"<body"].iter().any(|m| lower.starts_with(m)) {
            "an HTML or XML page"
        } else if is_json(text) {
            "a JSON document"
        } else {
            return None;
        };
    let start = String::from_utf8_lossy(&text[..text.len().min(160)]);
    let start: String =
        start.chars().take(80).collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ");
    Some(WeightsError::Document { path: path.into(), kind, start })
}

fn is_json(text: &[u8]) -> bool {
    let Some((open, rest)) = text.split_first() else { return false };
    let next = rest.trim_ascii_start().first();
    match open {
        b'{' => matches!(next, Some(b'"' | b'}')),
        b'[' => matches!(next, Some(b'"' | b'{' | b'[' | b']')),
        _ => false,
    }
}

fn binary(path: &Path, head: &[u8]) -> Option<WeightsError> {
    let torch = |form| Some(WeightsError::TorchFile { path: path.into(), form });
    let other = |format| Some(WeightsError::OtherFormat { path: path.into(), format });
    let holds = |what: &[u8]| head.windows(what.len()).any(|w| w == what);
    if PICKLE.iter().any(|magic| head.starts_with(magic)) {
        return torch("a pickle");
    }
    if head.starts_with(b"PK\x03\x04") {
        return if holds(b".npy") {
            other("a NumPy archive")
        } else {
            torch("a zip archive of pickled tensors")
        };
    }
    match head {
        [b'G', b'G', b'U', b'F', ..] => other("a GGUF file"),
        [0x1f, 0x8b, ..] => other("a gzip archive"),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => other("a NumPy array"),
        _ if head.get(257..262) == Some(b"ustar") => other("a tar archive"),
        _ => None,
    }
}
