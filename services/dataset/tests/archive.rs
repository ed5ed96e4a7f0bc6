//! Archives: only regular files, only below the folder, whole.

use std::io::Write;
use std::path::Path;

use dataset::import::archive::{UnpackLimits, unpack};
use dataset::import::finding::Fault;

const LIMITS: UnpackLimits = UnpackLimits { max_bytes: 1_000, max_entries: 10 };

fn entry(kind: tar::EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    // Set by hand: the library refuses to write such names.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let padding = content.len().next_multiple_of(512) - content.len();
    [header.as_bytes().as_slice(), content, &vec![0; padding]].concat()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(tar::EntryType::Regular, name, "", content)
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn run(bytes: &[u8], check: impl FnOnce(&Path)) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, into) = (dir.path().join("a.tar"), dir.path().join("into/deep"));
    std::fs::write(&path, bytes).expect("writes");
    std::fs::create_dir_all(&into).expect("makes");
    let outcome = unpack(&path, "a.tar", &into, LIMITS);
    assert!(!dir.path().join("into/evil").exists() && !dir.path().join("evil").exists(), "nothing outside");
    check(&into);
    outcome.err().unwrap_or_default().into_iter().map(|Fault { code, detail, .. }| (code, detail)).collect()
}

#[test]
fn plain_and_compressed_archives_are_unpacked() {
    let bytes = archive(&[
        entry(tar::EntryType::Directory, "ds/", "", b""),
        file("ds/a.txt", b"A"),
        file("./ds/b/c.txt", b"C"),
    ]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).expect("packs");
    for bytes in [bytes, packed.finish().expect("packs")] {
        let faults = run(&bytes, |into| {
            assert_eq!(std::fs::read(into.join("ds/a.txt")).expect("there"), b"A");
            assert_eq!(std::fs::read(into.join("ds/b/c.txt")).expect("there"), b"C");
        });
        assert_eq!(faults, []);
    }
}

#[test]
fn entries_that_leave_the_folder_links_bombs_and_other_formats_are_refused() {
    let code =
        |bytes: &[u8]| -> Vec<String> { run(bytes, |_| ()).into_iter().map(|(code, _)| code).collect() };
    for name in ["../evil", "../../evil", "/evil", "ds/../../evil", "ds\\..\\evil"] {
        assert_eq!(code(&archive(&[file(name, b"x")])), ["path_outside"], "{name}");
    }
    let links = archive(&[
        entry(tar::EntryType::Symlink, "l", "/etc", b""),
        file("l/passwd", b"x"),
        entry(tar::EntryType::Link, "h", "/etc/passwd", b""),
        entry(tar::EntryType::Fifo, "f", "", b""),
    ]);
    assert_eq!(code(&links), ["link", "link", "link"], "all of them are told at once");
    assert_eq!(code(&archive(&[file("big", &[0; 1_001])])), ["archive_size"]);
    assert_eq!(
        code(&archive(&(0..11).map(|i| file(&format!("f{i}"), b"")).collect::<Vec<_>>())),
        ["archive_size"]
    );
    assert_eq!(code(&archive(&[file("a", b"1"), file("a", b"2")])), ["archive"], "a name twice");
    let whole = archive(&[file("a", &[1; 900])]);
    assert_eq!(code(&whole[..700]), ["archive"], "cut short");
    for (head, what) in [
        (&b"PK\x03\x04rest"[..], "a zip archive"),
        (b"\x28\xB5\x2F\xFDrest", "zstd"),
        (b"{\"json\": 1}", "no archive"),
        (b"", "no archive"),
    ] {
        let faults = run(head, |_| ());
        assert!(faults[0].0 == "archive_format" && faults[0].1.contains(what), "{faults:?}");
    }
}
