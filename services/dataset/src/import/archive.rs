//! Unpacking an archive into a fresh folder: tar, plain or gzip, regular files only, nothing outside.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::finding::Fault;

/// Bounds of what an archive may hold.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// Bytes of all files together.
    pub max_bytes: u64,
    /// Number of entries.
    pub max_entries: u64,
}

/// Unpacks `archive` into `into`, which must be empty.
///
/// # Errors
/// Every fault of the archive: other formats, entries that would leave the folder, links, too much data, a cut file. The
/// folder holds a part then and is for the caller to remove.
pub fn unpack(archive: &Path, name: &str, into: &Path, limits: UnpackLimits) -> Result<(), Vec<Fault>> {
    let broken =
        |error: std::io::Error| vec![Fault::new(name, "archive", format!("cannot be read: {error}"))];
    let mut head = [0u8; 512];
    let read = fill(&mut File::open(archive).map_err(broken)?, &mut head).map_err(broken)?;
    let file = BufReader::new(File::open(archive).map_err(broken)?);
    match &head[..read] {
        [0x1F, 0x8B, ..] => entries(tar::Archive::new(MultiGzDecoder::new(file)), name, into, limits),
        [b'P', b'K', 3 | 5, ..] => Err(vec![foreign(name, "a zip archive")]),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Err(vec![foreign(name, "zstd-compressed")]),
        [0xFD, b'7', b'z', ..] => Err(vec![foreign(name, "xz-compressed")]),
        [b'B', b'Z', b'h', ..] => Err(vec![foreign(name, "bzip2-compressed")]),
        whole if whole.len() == 512 && &whole[257..262] == b"ustar" => {
            entries(tar::Archive::new(file), name, into, limits)
        }
        _ => Err(vec![foreign(name, "no archive")]),
    }
}

fn foreign(name: &str, what: &str) -> Fault {
    Fault::new(name, "archive_format", format!("is {what}; send a .tar or .tar.gz"))
}

fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

fn entries<R: Read>(
    mut archive: tar::Archive<R>,
    name: &str,
    into: &Path,
    limits: UnpackLimits,
) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    let (mut bytes, mut count) = (0u64, 0u64);
    let broken =
        |error: std::io::Error| Fault::new(name, "archive", format!("is damaged or cut short: {error}"));
    let all = archive.entries().map_err(|e| vec![broken(e)])?;
    for entry in all {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                faults.push(broken(error));
                break;
            }
        };
        count += 1;
        bytes = bytes.saturating_add(entry.size());
        if bytes > limits.max_bytes || count > limits.max_entries {
            let detail =
                format!("holds more than {} bytes or {} entries", limits.max_bytes, limits.max_entries);
            faults.push(Fault::new(name, "archive_size", detail));
            break;
        }
        let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        match target(&shown, entry.header().entry_type()) {
            Err((code, detail)) => faults.push(Fault::new(name, code, detail)),
            // What follows would not be imported; the names are still looked at, so that all faults are told at once.
            Ok(_) if !faults.is_empty() => {}
            Ok(None) => {}
            Ok(Some(path)) => {
                if let Err(error) = write(&mut entry, &into.join(path)) {
                    faults.push(Fault::new(name, "archive", format!("entry {shown:?}: {error}")));
                }
            }
        }
    }
    if count == 0 && faults.is_empty() {
        faults.push(Fault::new(name, "archive", "is empty"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Where an entry goes; none for folders.
fn target(shown: &str, kind: tar::EntryType) -> Result<Option<PathBuf>, (&'static str, String)> {
    if kind.is_dir() || kind.is_pax_global_extensions() {
        return Ok(None);
    }
    if !kind.is_file() && kind != tar::EntryType::Continuous {
        return Err(("link", format!("entry {shown:?} is a link or a special file")));
    }
    let mut path = PathBuf::new();
    for part in Path::new(shown).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return Err(("path_outside", format!("entry {shown:?} would leave the folder"))),
        }
    }
    if path.as_os_str().is_empty() || shown.contains(['\0', '\\']) {
        return Err(("path_outside", format!("entry {shown:?} has no usable name")));
    }
    Ok(Some(path))
}

fn write(entry: &mut impl Read, path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A name that comes twice is refused here.
    let mut file = File::options().write(true).create_new(true).open(path)?;
    std::io::copy(entry, &mut file).map(|_| ())
}
