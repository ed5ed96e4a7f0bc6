//! Model directories: names match the published inventories, bytes follow from the seed, damage is told apart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weights::{
    ModelConfig, ModelDir, SafetensorsFile, WeightsError, init_model, lm_inventory, mimi_inventory, verify,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[expect(clippy::disallowed_methods, reason = "where golden data lies is the choice of who runs the tests")]
fn golden(name: &str) -> PathBuf {
    let root = std::env::var("PPX_GOLDEN_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
    Path::new(&root).join(name)
}

fn published(name: &str) -> Result<BTreeMap<String, Vec<i64>>, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(golden("personaplex/checkpoint").join(name))?)?)
}

#[test]
fn the_7b_preset_has_exactly_the_golden_names_and_shapes() -> Outcome {
    let config = ModelConfig::preset("personaplex-7b")?;
    let lm: BTreeMap<_, _> = lm_inventory(&config.lm).into_iter().map(|s| (s.name, s.shape)).collect();
    assert_eq!(lm, published("personaplex_names.json")?);
    assert_eq!(lm.values().map(|s| s.iter().product::<i64>()).sum::<i64>(), 8_371_408_896);
    let mimi: BTreeMap<_, _> = mimi_inventory(&config.mimi).into_iter().map(|s| (s.name, s.shape)).collect();
    assert_eq!(mimi, published("mimi_names.json")?);
    Ok(())
}

#[test]
fn the_same_seed_writes_the_same_bytes_and_another_seed_does_not() -> Outcome {
    let root = tempfile::tempdir()?;
    let a = init_model(&root.path().join("a"), "tiny", 0)?;
    let b = init_model(&root.path().join("b"), "tiny", 0)?;
    let c = init_model(&root.path().join("c"), "tiny", 1)?;
    assert_eq!(a.files, b.files);
    assert_ne!(a.file("model.safetensors"), c.file("model.safetensors"));
    assert_eq!(a.file("tokenizer.model"), c.file("tokenizer.model"));
    verify(&root.path().join("a"))?;
    assert!(matches!(init_model(&root.path().join("a"), "tiny", 0), Err(WeightsError::Exists { .. })));
    Ok(())
}

#[test]
fn the_format_s_own_reader_accepts_what_is_written() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    init_model(&dir, "tiny", 0)?;
    for path in [ModelDir::new(&dir).lm(), ModelDir::new(&dir).mimi()] {
        let bytes = std::fs::read(&path)?;
        let theirs = safetensors::SafeTensors::deserialize(&bytes)?;
        let ours = SafetensorsFile::open(&path)?;
        assert_eq!(theirs.len(), ours.tensors().count());
        for (name, view) in theirs.tensors() {
            assert_eq!(view.data(), ours.tensor(&name)?.1, "{name}");
        }
    }
    Ok(())
}

#[test]
fn every_kind_of_damage_has_its_own_message() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    init_model(&dir, "tiny", 0)?;
    let path = ModelDir::new(&dir).lm();
    let whole = std::fs::read(&path)?;

    std::fs::write(&path, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")?;
    assert!(matches!(verify(&dir), Err(WeightsError::LfsPointer { .. })));
    std::fs::write(&path, b"PK\x03\x04 this is a zip archive, not weights")?;
    assert!(matches!(verify(&dir), Err(WeightsError::TorchFile { .. })));
    std::fs::write(&path, &whole[..whole.len() - 10])?;
    assert!(matches!(verify(&dir), Err(WeightsError::Truncated { .. })));
    std::fs::write(&path, [&whole[..], b"xx"].concat())?;
    assert!(matches!(verify(&dir), Err(WeightsError::TrailingBytes { extra: 2, .. })));

    let header_end = 8 + u64::from_le_bytes(whole[..8].try_into()?) as usize;
    let header = std::str::from_utf8(&whole[8..header_end])?;
    let renamed =
        header.replacen("out_norm.alpha", "out_nrom.alpha", 1).replacen("[1025,64]", "[64,1025]", 1);
    std::fs::write(&path, [&whole[..8], renamed.as_bytes(), &whole[header_end..]].concat())?;
    let Err(WeightsError::Names { report, .. }) = verify(&dir) else { panic!("names must be compared") };
    assert_eq!(report.missing, ["out_norm.alpha"]);
    assert_eq!(report.unexpected, ["out_nrom.alpha"]);
    assert_eq!(report.wrong_shape.len(), 1);
    Ok(())
}

#[test]
fn written_values_have_sensible_scales() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    init_model(&dir, "tiny", 7)?;
    let lm = SafetensorsFile::open(&ModelDir::new(&dir).lm())?;
    let (entry, bytes) = lm.tensor("transformer.layers.0.self_attn.in_proj_weight")?;
    assert_eq!(entry.shape, [192, 64]);
    let values: Vec<f32> = bytes
        .chunks_exact(2)
        .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
        .collect();
    let rms = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
    assert!((rms - 0.125).abs() < 0.005, "1/sqrt(64) expected, got {rms}");
    let (_, alpha) = lm.tensor("out_norm.alpha")?;
    assert!(alpha.chunks_exact(2).all(|b| b == [0x80, 0x3f]));
    Ok(())
}
