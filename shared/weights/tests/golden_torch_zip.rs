//! Files of `torch.save`: the published package's own voice file, and what a hostile or damaged one leads to.

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use weights::torch_zip::{TorchValue, TorchZipError, TorchZipLimits, parse_torch_zip, read_torch_zip};
use weights::{Dtype, SafetensorsFile, VoiceFile};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Type, shape and bytes of a tensor.
type Plain = (Dtype, Vec<i64>, Vec<u8>);
type Outcome = Result<(), Box<dyn std::error::Error>>;

#[expect(clippy::disallowed_methods, reason = "where golden data lies is the choice of who runs the tests")]
fn golden(name: &str) -> PathBuf {
    let root = std::env::var("PPX_GOLDEN_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
    Path::new(&root).join("personaplex/lm_tiny").join(name)
}

fn parse(bytes: &[u8]) -> Result<TorchValue, TorchZipError> {
    parse_torch_zip(bytes, &TorchZipLimits::default())
}

/// A zip with the given entries, checksums right.
fn archive(
    entries: &[(&str, &[u8])],
    method: CompressionMethod,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method))?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// A file with this pickle and one storage `0` of eight bytes.
fn file(pickle: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let storage = [1, 2, 3, 4, 5, 6, 7, 8];
    let entries: [(&str, &[u8]); 3] =
        [("v/data.pkl", pickle), ("v/byteorder", b"little"), ("v/data/0", &storage)];
    archive(&entries, CompressionMethod::Stored)
}

fn text(s: &str) -> Vec<u8> {
    let mut out = vec![b'X'];
    out.extend(u32::try_from(s.len()).unwrap_or(0).to_le_bytes());
    out.extend(s.as_bytes());
    out
}

fn int(value: i32) -> Vec<u8> {
    let mut out = vec![b'J'];
    out.extend(value.to_le_bytes());
    out
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
}

/// `{"t": tensor}` whose description is given; the storage is `class` of `elements`.
fn tensor(class: &str, elements: i32, offset: i32, shape: &[i32], strides: &[i32]) -> Vec<u8> {
    let ints = |v: &[i32]| tuple(&v.iter().map(|n| int(*n)).collect::<Vec<_>>());
    let global = |s: &str| format!("c{s}\n").into_bytes();
    let id = tuple(&[
        text("storage"),
        global(&format!("torch\n{class}")),
        text("0"),
        text("cuda:0"),
        int(elements),
    ]);
    let hooks = [global("collections\nOrderedDict"), b")R".to_vec()].concat();
    let args = [[id, b"Q".to_vec()].concat(), int(offset), ints(shape), ints(strides), vec![0x89], hooks];
    let call = [global("torch._utils\n_rebuild_tensor_v2"), tuple(&args), b"R".to_vec()].concat();
    [b"\x80\x02}".to_vec(), text("t"), call, b"s.".to_vec()].concat()
}

fn refusal(pickle: &[u8]) -> Result<String, Box<dyn std::error::Error>> {
    match parse(&file(pickle)?) {
        Ok(value) => Err(format!("was read: {value:?}").into()),
        Err(error) => Ok(error.to_string()),
    }
}

#[test]
fn the_published_voice_file_holds_what_its_safetensors_twin_holds() -> Outcome {
    let found = read_torch_zip(&golden("voice.pt"), &TorchZipLimits::default())?.into_tensors()?;
    let twin = SafetensorsFile::open(&golden("voice_pt.safetensors"))?;
    assert_eq!(found.len(), twin.tensors().count());
    for (name, tensor) in &found {
        let (entry, bytes) = twin.tensor(name)?;
        assert_eq!(tensor.shape, entry.shape, "{name}");
        if entry.dtype == tensor.dtype {
            assert_eq!(tensor.data, bytes, "{name}");
            continue;
        }
        // The twin narrowed the ids.
        assert_eq!((tensor.dtype, entry.dtype), (Dtype::I64, Dtype::I32), "{name}");
        let wide: Vec<i64> = tensor
            .data
            .chunks_exact(8)
            .map(|b| b.try_into().map(i64::from_le_bytes))
            .collect::<Result<_, _>>()?;
        let narrow: Vec<i32> =
            bytes.chunks_exact(4).map(|b| b.try_into().map(i32::from_le_bytes)).collect::<Result<_, _>>()?;
        assert_eq!(wide, narrow.into_iter().map(i64::from).collect::<Vec<_>>(), "{name}");
    }
    Ok(())
}

#[test]
fn a_voice_survives_its_stored_form_and_deflated_files_read_alike() -> Outcome {
    let bytes = std::fs::read(golden("voice.pt"))?;
    let voice = VoiceFile::from_torch(&bytes)?;
    assert_eq!(VoiceFile::from_bytes(&voice.to_bytes())?, voice);
    let VoiceFile::Embeddings(e) = &voice else { return Err("not embeddings".into()) };
    let twin = SafetensorsFile::open(&golden("voice_pt.safetensors"))?;
    let (entry, _) = twin.tensor("embeddings")?;
    assert_eq!((e.calls() as i64 - 1, e.dim as i64), (entry.shape[0], entry.shape[3]));
    // Deflate every entry.
    let mut zip = ZipArchive::new(Cursor::new(&bytes))?;
    let mut entries = Vec::new();
    for i in 0..zip.len() {
        let mut entry = zip.by_index(i)?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        entries.push((entry.name()?.to_string(), content));
    }
    let entries: Vec<(&str, &[u8])> = entries.iter().map(|(n, c)| (n.as_str(), c.as_slice())).collect();
    let deflated = archive(&entries, CompressionMethod::Deflated)?;
    assert_ne!(deflated, bytes);
    assert_eq!(VoiceFile::from_torch(&deflated)?, voice);
    Ok(())
}

#[test]
fn strides_and_offsets_give_the_elements_they_name() -> Outcome {
    let read = |pickle: Vec<u8>| -> Result<Plain, Box<dyn std::error::Error>> {
        let (_, t) = parse(&file(&pickle)?)?.into_tensors()?.swap_remove(0);
        Ok((t.dtype, t.shape, t.data))
    };
    assert_eq!(
        read(tensor("ByteStorage", 8, 2, &[2, 3], &[3, 1]))?,
        (Dtype::U8, vec![2, 3], vec![3, 4, 5, 6, 7, 8])
    );
    assert_eq!(read(tensor("CharStorage", 8, 0, &[4, 2], &[1, 4]))?.2, [1, 5, 2, 6, 3, 7, 4, 8]);
    assert_eq!(read(tensor("ShortStorage", 4, 1, &[2], &[2]))?.2, [3, 4, 7, 8]);
    assert_eq!(
        read(tensor("LongStorage", 1, 0, &[], &[]))?,
        (Dtype::I64, vec![], vec![1, 2, 3, 4, 5, 6, 7, 8])
    );
    assert_eq!(read(tensor("FloatStorage", 2, 1, &[3, 1], &[0, 9]))?.2, [5, 6, 7, 8].repeat(3));
    assert_eq!(read(tensor("BFloat16Storage", 4, 0, &[0, 5], &[5, 1]))?, (Dtype::BF16, vec![0, 5], vec![]));
    Ok(())
}

#[test]
fn descriptions_that_leave_their_storage_are_refused_with_their_numbers() -> Outcome {
    for (pickle, wanted) in [
        (tensor("ByteStorage", 8, 0, &[9], &[1]), "do not fit a storage of 8 elements"),
        (tensor("ByteStorage", 8, 6, &[3], &[1]), "offset 6"),
        (tensor("ByteStorage", 8, -1, &[3], &[1]), "offset -1"),
        (tensor("ByteStorage", 8, 0, &[-1], &[1]), "[-1]"),
        (tensor("ByteStorage", 8, 7, &[2], &[-1]), "strides [-1]"),
        (tensor("ByteStorage", 8, 0, &[2, 2], &[1]), "strides [1]"),
        (tensor("ByteStorage", 8, 0, &[i32::MAX; 8], &[0; 8]), "do not fit"),
        (tensor("ByteStorage", 8, 0, &[i32::MAX], &[0]), "is more than"),
        (tensor("ByteStorage", 9, 0, &[1], &[1]), "8 bytes, 9 were announced"),
        (tensor("LongStorage", 8, 0, &[1], &[1]), "8 bytes, 64 were announced"),
        (tensor("ByteStorage", 7, 0, &[1], &[1]), "at most 7 are read"),
        (tensor("ByteStorage", -7, 0, &[1], &[1]), "storage of -7 elements"),
        (tensor("ComplexFloatStorage", 1, 0, &[1], &[1]), "torch.ComplexFloatStorage"),
    ] {
        let error = refusal(&pickle)?;
        assert!(error.contains(wanted), "{error:?} does not tell {wanted:?}");
    }
    Ok(())
}

#[test]
fn nothing_that_would_run_code_is_accepted_and_each_is_named() -> Outcome {
    let call = [b"\x80\x02cos\nsystem\n".to_vec(), tuple(&[text("true")]), b"R.".to_vec()].concat();
    let cases: [(&[u8], &str); 14] = [
        (&call, "os.system"),
        (b"\x80\x02cbuiltins\neval\n.", "builtins.eval"),
        (b"\x80\x02ctorch\nload\n.", "torch.load"),
        (b"\x80\x02ctorch._utils\n_rebuild_parameter\n.", "torch._utils._rebuild_parameter"),
        (b"\x80\x02ccollections\nnamedtuple\n.", "collections.namedtuple"),
        (b"\x80\x02(ios\nsystem\n.", "INST"),
        (b"\x80\x02}}b.", "BUILD"),
        (b"\x80\x02))\x81.", "NEWOBJ"),
        (b"\x80\x02X\x02\x00\x00\x00osX\x06\x00\x00\x00system\x93.", "STACK_GLOBAL"),
        (b"\x80\x02(o.", "OBJ"),
        (b"\x80\x02\x82\x01.", "EXT"),
        (b"\x80\x02P0\n.", "PERSID"),
        (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.", "protocol 4"),
        (b"\x80\x02ctorch\nFloatStorage\n)R.", "storage class"),
    ];
    for (pickle, wanted) in cases {
        let error = refusal(pickle)?;
        assert!(error.contains(wanted), "{error:?} does not name {wanted:?}");
    }
    Ok(())
}

#[test]
fn other_kinds_of_file_have_their_own_words() -> Outcome {
    let legacy = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";
    let dict: &[u8] = b"\x80\x02}.";
    let big = archive(&[("v/data.pkl", dict), ("v/byteorder", b"big")], CompressionMethod::Stored)?;
    let two = archive(&[("v/data.pkl", dict), ("w/x", b"")], CompressionMethod::Stored)?;
    let none = archive(&[("v/x", dict)], CompressionMethod::Stored)?;
    let whole = std::fs::read(golden("voice.pt"))?;
    let cases: [(&[u8], &str); 8] = [
        (legacy, "old kind"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (&big, "byte order is \"big\""),
        (&two, "lies outside"),
        (&none, "no data.pkl"),
        (&whole[..whole.len() / 2], "not a zip file of torch.save"),
        (b"RIFF", "starting with \"RIFF\""),
        (b"", "0 bytes"),
    ];
    for (bytes, wanted) in cases {
        let error = parse(bytes).map_err(|e| e.to_string()).err().ok_or("was read")?;
        assert!(error.contains(wanted), "{error:?} does not tell {wanted:?}");
    }
    // A byte of a storage flipped: the checksum of its entry tells.
    let mut flipped = file(&tensor("ByteStorage", 8, 0, &[8], &[1]))?;
    let at = flipped.windows(8).position(|w| w == [1, 2, 3, 4, 5, 6, 7, 8]).ok_or("no storage")?;
    flipped[at] ^= 1;
    assert!(parse(&flipped).is_err());
    Ok(())
}

#[test]
fn files_built_to_fill_the_memory_end_at_a_limit() -> Outcome {
    // Forty tuples, each of twice the one before: 2^40 values if written out.
    let mut doubling = b"\x80\x02)q\x00".to_vec();
    for i in 0..40u8 {
        doubling.extend([b'h', i, b'h', i, 0x86, b'q', i + 1]);
    }
    // What lies below the last is left over on the stack unless it is gathered into one tuple.
    let gathered = [b"\x80\x02(".to_vec(), doubling[2..].to_vec(), b"t.".to_vec()].concat();
    let error = refusal(&gathered)?;
    assert!(error.contains("values") || error.contains("nested"), "{error}");
    // A dict that is its own value.
    let error = refusal(b"\x80\x02}q\x00K\x01h\x00s.")?;
    assert!(error.contains("nested deeper"), "{error}");
    // Zeros that pack well are refused by their announced size.
    let bomb = vec![0u8; 4 << 20];
    let packed = archive(&[("v/data.pkl", &bomb)], CompressionMethod::Deflated)?;
    assert!(packed.len() < 64 << 10);
    let error = parse(&packed).map_err(|e| e.to_string()).err().ok_or("was read")?;
    assert!(error.contains("its pickle has 4194304 bytes"), "{error}");
    Ok(())
}

#[test]
fn a_voice_file_of_another_content_is_refused_by_what_is_wrong() -> Outcome {
    let cases = [
        (tensor("ByteStorage", 8, 0, &[8], &[1]), "holds t"),
        (b"\x80\x02}.".to_vec(), "holds nothing"),
        (b"\x80\x02K\x07.".to_vec(), "an int, not a dict"),
        (b"\x80\x02}X\x05\x00\x00\x00cacheK\x07s.".to_vec(), "\"cache\" is an int"),
    ];
    for (pickle, wanted) in cases {
        let error =
            VoiceFile::from_torch(&file(&pickle)?).map_err(|e| e.to_string()).err().ok_or("was read")?;
        assert!(error.contains(wanted), "{error:?} does not tell {wanted:?}");
    }
    let VoiceFile::Embeddings(good) = VoiceFile::from_torch(&std::fs::read(golden("voice.pt"))?)? else {
        return Err("not embeddings".into());
    };
    let refused = |voice: Box<weights::VoiceEmbeddings>| {
        VoiceFile::from_bytes(&VoiceFile::Embeddings(voice).to_bytes()).map_err(|e| e.to_string()).err()
    };
    let last = (good.calls() - 1) % weights::RING_ROWS;
    let mut voice = good.clone();
    voice.ring[3][last] = weights::UNWRITTEN;
    assert!(refused(voice).is_some_and(|e| e.contains("cache") && e.contains("is -2, expected -1")));
    let mut voice = good.clone();
    voice.ring[0][0] = -3;
    assert!(refused(voice).is_some_and(|e| e.contains("cache[0] is -3")));
    let mut voice = good.clone();
    voice.embeddings[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(good.dtype != Dtype::F32 || refused(voice).is_some_and(|e| e.contains("finite")));
    let mut voice = good.clone();
    voice.embeddings.truncate(good.dim * good.dtype.size());
    assert!(refused(voice).is_some_and(|e| e.contains("embeddings has shape [1,")));
    for other in [
        VoiceFile::Samples(vec![0.5; 100]),
        VoiceFile::Codes { codec_sha256: "x".into(), frames: vec![[7; 8]; 3] },
    ] {
        assert_eq!(VoiceFile::from_bytes(&other.to_bytes())?, other);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_change_of_bytes_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(golden("voice.pt")).expect("the golden set is there");
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = VoiceFile::from_torch(&bytes);
    }

    #[test]
    fn no_change_of_the_pickle_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
    ) {
        let mut pickle = tensor("ShortStorage", 4, 1, &[2], &[2]);
        for (at, value) in changes {
            let at = at.index(pickle.len());
            pickle[at] = value;
        }
        for (a, b) in swaps {
            let (a, b) = (a.index(pickle.len()), b.index(pickle.len()));
            pickle.swap(a, b);
        }
        let _ = parse(&file(&pickle).expect("a zip"));
    }

    #[test]
    fn random_opcodes_never_make_it_panic(
        ops in prop::collection::vec(prop::sample::select(b"}()XcJKMtqrhjQRsu.\x85\x86\x87\x88\x89\x8a\x00\x01\n".to_vec()), 0..200),
    ) {
        let pickle = [b"\x80\x02".to_vec(), ops].concat();
        let _ = parse(&file(&pickle).expect("a zip"));
    }
}
