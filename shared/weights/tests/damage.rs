//! Every way in which a file is not the weights has its own message, and no bytes make the reader panic (case A21).

mod common;

use std::path::{Path, PathBuf};

use common::{Outcome, raw};
use proptest::prelude::*;
use weights::{
    CheckpointSource, Dtype, ModelDir, SafetensorsFile, WeightsError, check_downloaded, check_tokenizer,
    init_model, sha256_file, verify,
};

const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:4665d2f0\nsize 16742818704\n";

fn refused(path: &Path, bytes: &[u8]) -> Result<WeightsError, Box<dyn std::error::Error>> {
    std::fs::write(path, bytes)?;
    let error = SafetensorsFile::open(path).err().ok_or("must be refused")?;
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    Ok(error)
}

#[test]
fn files_of_other_kinds_are_named_for_what_they_are() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    type Is = fn(&WeightsError) -> bool;
    let (pointer, torch): (Is, Is) =
        (|e| matches!(e, WeightsError::LfsPointer { .. }), |e| matches!(e, WeightsError::TorchFile { .. }));
    let document: Is = |e| matches!(e, WeightsError::Document { .. });
    let other: Is = |e| matches!(e, WeightsError::OtherFormat { .. });
    let tar = [&[b'a'; 257][..], b"ustar", &[0; 250]].concat();
    let zip = b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00archive/data.pkl";
    let cases: Vec<(&[u8], Is, &str)> = vec![
        (POINTER, pointer, "git lfs"),
        (&POINTER[..20], pointer, "git lfs"),
        (&POINTER[..7], pointer, "git lfs"),
        (zip, torch, "safetensors.torch.save_file"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", torch, "a pickle"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", torch, "a pickle"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", document, "an HTML or XML page"),
        (b"\n\n  <html lang=en><head>", document, "<html lang=en>"),
        (b"\xef\xbb\xbf<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", document, "AccessDenied"),
        (b"{\"error\":\"Access to model nvidia/personaplex is restricted\"}", document, "is restricted"),
        (b"{\n  \"weight_map\": {}\n}", document, "a JSON document"),
        (b"[1, 2]", |e| matches!(e, WeightsError::Truncated { .. }), "8 bytes announced, 6 present"),
        (b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00", other, "a GGUF file"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc", other, "a gzip archive"),
        (b"\x93NUMPY\x01\x00v\x00{'descr'", other, "a NumPy array"),
        (b"PK\x03\x04\x14\x00\x00\x00\x00\x00arr_0.npy", other, "a NumPy archive"),
        (&tar, other, "a tar archive"),
        (b"", |e| matches!(e, WeightsError::Empty { .. }), "0 bytes"),
        (b"abc", |e| matches!(e, WeightsError::Truncated { .. }), "3 present"),
        (&[0xff; 64], |e| matches!(e, WeightsError::NotSafetensors { .. }), "no header"),
    ];
    for (bytes, is, words) in cases {
        let error = refused(&path, bytes)?;
        assert!(is(&error) && error.to_string().contains(words), "{bytes:?}: {error}");
    }
    let error = SafetensorsFile::open(dir.path()).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::Directory { .. }), "{error}");
    let error = SafetensorsFile::open(&dir.path().join("none")).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::Io { action: "open", .. }), "{error}");
    Ok(())
}

#[test]
fn headers_that_contradict_themselves_or_their_data_are_told_apart() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let a = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    let entry = |name: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"F32","shape":[{}],"data_offsets":[{from},{to}]}}"#, (to - from) / 4)
    };
    let open = |header: &str, data: usize| -> Result<String, Box<dyn std::error::Error>> {
        raw(&path, header, &vec![0; data])?;
        let error = SafetensorsFile::open(&path).err().ok_or_else(|| format!("{header} must be refused"))?;
        let kind = format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_string();
        Ok(format!("{kind}: {error}"))
    };
    for (header, data, kind, words) in [
        (format!("{{{a},{a}}}"), 8, "DuplicateName", "\"a\" twice"),
        (format!("{{{a},{}}}", entry("b", 4, 12)), 12, "Overlap", "\"b\" starts at byte 4, \"a\" ends at 8"),
        (format!("{{{a},{}}}", entry("b", 0, 8)), 8, "Overlap", "starts at byte 0"),
        (format!("{{{a},{}}}", entry("b", 12, 16)), 16, "Gap", "starts at byte 12 where 8 was expected"),
        (format!("{{{}}}", entry("b", 4, 8)), 8, "Gap", "where 0 was expected"),
        (format!("{{{a}}}"), 7, "Truncated", "7"),
        (format!("{{{a}}}"), 0, "Truncated", "announced"),
        (format!("{{{a}}}"), 10, "TrailingBytes", "2 bytes after"),
        (format!("{{{a}}}xx"), 8, "MisalignedHeader", "the JSON ends after"),
        (format!("{{{a}"), 8, "MisalignedHeader", "does not end within"),
        (format!("{{{a},\"b\":5}}"), 8, "NotSafetensors", "header cannot be used"),
        ("{\"a\" 1}".to_string(), 8, "NotSafetensors", "header cannot be used"),
        (a.replace("[2]", "[3]"), 8, "NotSafetensors", "shape [3]"),
        (a.replace("[2]", "[-2]"), 8, "NotSafetensors", "[-2]"),
        (a.replace("[2]", "[4611686018427387904,4]"), 8, "NotSafetensors", "4611686018427387904"),
        (a.replace("[2]", "[2305843009213693952]"), 8, "NotSafetensors", "2305843009213693952"),
        (a.replace("[0,8]", "[8,0]"), 8, "NotSafetensors", "8..0"),
        (a.replace("F32", "F31"), 8, "NotSafetensors", "unknown type \"F31\""),
    ] {
        let header = if header.starts_with('{') { header } else { format!("{{{header}}}") };
        let found = open(&header, data)?;
        assert!(found.starts_with(&format!("{kind}: ")) && found.contains(words), "{header}: {found}");
    }
    // As the format's own reader takes it: padding with spaces, or none at all.
    for pad in ["", " ", "       "] {
        raw(&path, &format!("{{{a}}}{pad}"), &[0; 8])?;
        assert_eq!(SafetensorsFile::open(&path)?.tensor("a")?.0.dtype, Dtype::F32);
    }
    Ok(())
}

#[test]
fn a_tokenizer_or_a_voice_that_was_not_downloaded_is_noticed() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    let info = init_model(&dir, "tiny", 0)?;
    let path = ModelDir::new(&dir).tokenizer();
    let whole = std::fs::read(&path)?;
    assert_eq!(check_tokenizer(&path)? as i64, info.config.lm.text_card);
    type Is = fn(&WeightsError) -> bool;
    let bad: Is = |e| matches!(e, WeightsError::BadTokenizer { .. });
    let more = [&whole[..], &[0x0a, 0x00]].concat();
    let cases: [(&[u8], Is); 5] = [
        (POINTER, |e| matches!(e, WeightsError::LfsPointer { .. })),
        (b"", |e| matches!(e, WeightsError::Empty { .. })),
        (b"<html>404</html>", |e| matches!(e, WeightsError::Document { .. })),
        (&whole[..whole.len() - 1], bad),
        // One piece more than the text stream has ids.
        (&more, bad),
    ];
    for (bytes, is) in cases {
        std::fs::write(&path, bytes)?;
        let error = verify(&dir).err().ok_or("must be refused")?;
        assert!(is(&error), "{error}");
    }
    let voice = root.path().join("voice.pt");
    std::fs::write(&voice, POINTER)?;
    assert!(matches!(check_downloaded(&voice), Err(WeightsError::LfsPointer { .. })));
    std::fs::write(&voice, b"PK\x03\x04")?;
    check_downloaded(&voice)?;
    assert!(matches!(check_downloaded(root.path()), Err(WeightsError::Directory { .. })));
    Ok(())
}

/// Case A21: the four downloads that are not the model.
#[test]
fn a_pointer_a_pickle_half_a_file_and_ten_more_bytes_are_four_messages() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    init_model(&dir, "tiny", 0)?;
    for path in [ModelDir::new(&dir).lm(), ModelDir::new(&dir).mimi()] {
        let whole = std::fs::read(&path)?;
        let before = sha256_file(&path)?;
        let mut messages = std::collections::BTreeSet::new();
        for bytes in
            [POINTER, b"\x80\x02}q\x00.", &whole[..whole.len() / 2], &[&whole[..], &[0; 10]].concat()]
        {
            std::fs::write(&path, bytes)?;
            let error = verify(&dir).err().ok_or("must be refused")?.to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
            messages.insert(error.split(" is ").nth(1).unwrap_or(&error).to_string());
        }
        assert_eq!(messages.len(), 4, "{messages:?}");
        std::fs::write(&path, &whole)?;
        assert_eq!(sha256_file(&path)?, before);
        verify(&dir)?;
    }
    Ok(())
}

/// A small valid file and the length of its header.
fn sample(dir: &Path) -> Result<(PathBuf, Vec<u8>, usize), Box<dyn std::error::Error>> {
    let path = dir.join("s.safetensors");
    let header = r#"{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b.c":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}"#;
    raw(&path, header, &[7; 26])?;
    let bytes = std::fs::read(&path)?;
    Ok((path, bytes, header.len()))
}

#[test]
fn a_file_cut_anywhere_is_refused() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (path, whole, _) = sample(dir.path())?;
    SafetensorsFile::open(&path)?;
    for cut in 0..whole.len() {
        let error = refused(&path, &whole[..cut])?;
        let is_cut = matches!(error, WeightsError::Truncated { .. } | WeightsError::Empty { .. });
        assert!(is_cut, "{cut}: {error}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_never_panic_and_never_reach_outside_the_file(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let dir = tempfile::tempdir()?;
        let (path, mut bytes, header) = sample(dir.path()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for (at, value) in &changes {
            bytes[at.index(8 + header)] = *value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, &bytes)?;
        if let Ok(source) = CheckpointSource::open(&path) {
            // A change may keep the file valid, as in a name; then all of it can be read.
            for (name, entry) in source.tensors() {
                let bytes = source.tensor(name).expect("listed").1;
                prop_assert_eq!(bytes.len() as u64, entry.elements() * entry.dtype.size() as u64);
            }
        }
    }

    #[test]
    fn any_numbers_in_a_header_are_checked(
        shape in prop::collection::vec(any::<i64>(), 0..4),
        from in any::<u64>(), to in any::<u64>(), data in 0usize..40,
    ) {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("n.safetensors");
        let header = format!(r#"{{"a":{{"dtype":"F64","shape":{shape:?},"data_offsets":[{from},{to}]}}}}"#);
        raw(&path, &header, &vec![0; data]).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let opened = SafetensorsFile::open(&path);
        prop_assert!(opened.is_err() || (from, to) == (0, data as u64));
    }
}
