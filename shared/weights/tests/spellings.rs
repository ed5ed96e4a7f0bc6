//! Every spelling in circulation is read as the published names, and nothing else is.

mod common;

use std::path::Path;

use common::{Outcome, Tensors, by_step, config, filled, module, per_step, read, write};
use weights::{
    CanonicalReader, CheckpointSource, Dtype, TensorSpec, WeightsError, lm_inventory, mimi_inventory,
};

fn canonical(path: &Path, wanted: &[TensorSpec]) -> Result<(String, Tensors), WeightsError> {
    let reader = CanonicalReader::open(path, wanted)?;
    let mut out = Tensors::new();
    for (name, shape) in reader.tensors() {
        let parts = reader.parts(name)?;
        let bytes: Vec<u8> = parts.iter().flat_map(|p| p.bytes.to_vec()).collect();
        assert_eq!(parts.iter().map(|p| p.shape[0]).sum::<i64>(), shape[0], "{name}");
        out.insert(name.into(), (reader.entry(name)?.1, shape.to_vec(), bytes));
    }
    Ok((reader.spelling().to_string(), out))
}

#[test]
fn every_spelling_of_a_language_model_gives_the_same_tensors() -> Outcome {
    let dir = tempfile::tempdir()?;
    for steps in [8, 16] {
        let lm = config(steps, 3)?.lm;
        let wanted = lm_inventory(&lm);
        let published = filled(&wanted);
        let spellings = [
            ("published", published.clone()),
            ("one projection per step", per_step(&published, steps as usize)),
            ("in_proj.weight", module(&published)),
            ("candle", by_step(&published, &lm)?),
        ];
        for (spelling, tensors) in spellings {
            let path = dir.path().join("m.safetensors");
            write(&path, &tensors)?;
            let (found, read) = canonical(&path, &wanted)?;
            assert_eq!(found, spelling);
            assert!(read == published, "{spelling}, {steps} steps");
        }
    }
    Ok(())
}

#[test]
fn every_spelling_of_a_codec_gives_the_same_tensors() -> Outcome {
    let dir = tempfile::tempdir()?;
    let wanted = mimi_inventory(&config(16, 2)?.mimi);
    let published = filled(&wanted);
    let old = |sum: &str| -> Tensors {
        let rename = |n: &String| {
            n.replace("._initialized", ".inited")
                .replace(".cluster_usage", ".cluster_size")
                .replace(".embedding_sum", sum)
        };
        published.iter().map(|(n, t)| (rename(n), t.clone())).collect()
    };
    for (spelling, tensors) in [
        ("published", published.clone()),
        ("old codebook names", old(".embed_avg")),
        ("old codebook names", old(".embed_sum")),
        ("one projection per step, old codebook names", per_step(&old(".embed_sum"), 1)),
    ] {
        let path = dir.path().join("m.safetensors");
        write(&path, &tensors)?;
        let (found, read) = canonical(&path, &wanted)?;
        assert_eq!(found, spelling);
        assert!(read == published, "{spelling}");
    }
    let mut both = old(".embed_avg");
    let extra = old(".embed_sum").pop_last().ok_or("no codebooks")?;
    both.insert(extra.0, extra.1);
    both.extend(old(".embed_sum").into_iter().filter(|(n, _)| n.ends_with("embed_sum")));
    write(&dir.path().join("both.safetensors"), &both)?;
    let error = canonical(&dir.path().join("both.safetensors"), &wanted).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::MixedSpellings { .. }), "{error}");
    Ok(())
}

#[test]
fn two_spellings_in_one_checkpoint_are_refused_by_name() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let lm = config(16, 2)?.lm;
    let wanted = lm_inventory(&lm);
    let published = filled(&wanted);
    let others = [per_step(&published, 16), module(&published), by_step(&published, &lm)?];
    for other in others {
        // One tensor of the other spelling is enough.
        let (name, tensor) = other.iter().find(|(n, _)| !published.contains_key(*n)).ok_or("must differ")?;
        let mut mixed = published.clone();
        mixed.insert(name.clone(), tensor.clone());
        write(&path, &mixed)?;
        let error = canonical(&path, &wanted).err().ok_or("must be refused")?;
        assert!(matches!(error, WeightsError::MixedSpellings { .. }), "{error}");
        assert!(error.to_string().contains(name.as_str()), "{error}");
    }
    Ok(())
}

#[test]
fn copies_of_a_shared_norm_must_be_equal() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let lm = config(16, 2)?.lm;
    let wanted = lm_inventory(&lm);
    let mut tensors = by_step(&filled(&wanted), &lm)?;
    let name = "depformer.9.transformer.layers.1.norm2.alpha";
    tensors.get_mut(name).ok_or("there")?.2[0] ^= 1;
    write(&path, &tensors)?;
    let error = canonical(&path, &wanted).err().ok_or("must be refused")?;
    assert!(matches!(&error, WeightsError::UnequalCopies { second, .. } if second == name), "{error}");
    Ok(())
}

#[test]
fn one_report_names_all_that_is_missing_unexpected_misshapen_and_of_another_type() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let wanted = lm_inventory(&config(16, 2)?.lm);
    // In the spelling of the file, whichever it is.
    let mut tensors = per_step(&filled(&wanted), 16);
    let missing = "depformer.layers.1.self_attn.in_projs.7.weight";
    tensors.remove(missing).ok_or("there")?;
    let norm = tensors.get("out_norm.alpha").cloned().ok_or("there")?;
    tensors.insert("out_norm.beta".into(), norm);
    let emb = tensors.get_mut("emb.3.weight").ok_or("there")?;
    emb.1.reverse();
    let head = tensors.get_mut("linears.5.weight").ok_or("there")?;
    *head = (Dtype::I16, head.1.clone(), head.2.clone());
    write(&path, &tensors)?;
    let error = canonical(&path, &wanted).err().ok_or("must be refused")?;
    let text = error.to_string();
    let WeightsError::Names { report, .. } = error else { panic!("{text}") };
    assert_eq!(report.missing, [missing]);
    assert_eq!(report.unexpected, ["out_norm.beta"]);
    assert_eq!(report.wrong_shape.len(), 1);
    assert_eq!(report.wrong_dtype, [("linears.5.weight".to_string(), Dtype::I16)]);
    for part in [missing, "out_norm.beta", "emb.3.weight", "linears.5.weight is I16, not F32, F16 or BF16"] {
        assert!(text.contains(part), "{text}");
    }
    Ok(())
}

#[test]
fn a_long_report_is_cut_with_a_count() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let wanted = lm_inventory(&config(16, 2)?.lm);
    let tensors: Tensors = filled(&wanted).into_iter().take(3).collect();
    write(&path, &tensors)?;
    let text = canonical(&path, &wanted).err().ok_or("must be refused")?.to_string();
    let (all, shown) = (wanted.len() - 3, 8);
    assert!(text.contains(&format!("{all} missing: ")), "{text}");
    assert!(text.contains(&format!(", … and {} more", all - shown)), "{text}");
    assert!(text.len() < 1000, "{text}");
    Ok(())
}

/// Case A29: a file whose tensor is gone is refused, whichever tensor it is.
#[test]
fn no_tensor_can_be_left_out() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let config = config(16, 1)?;
    for wanted in [lm_inventory(&config.lm), mimi_inventory(&config.mimi)] {
        let whole = filled(&wanted);
        for name in whole.keys() {
            let mut cut = whole.clone();
            cut.remove(name);
            write(&path, &cut)?;
            match canonical(&path, &wanted) {
                Err(WeightsError::Names { report, .. }) => assert_eq!(report.missing, [name.as_str()]),
                other => panic!("{name}: {:?}", other.map(|(spelling, _)| spelling)),
            }
        }
    }
    Ok(())
}

#[test]
fn the_read_back_of_any_names_is_what_the_file_holds() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("m.safetensors");
    let tensors: Tensors = [("x.y".to_string(), (Dtype::I64, vec![2], vec![7; 16]))].into();
    write(&path, &tensors)?;
    let reader = CanonicalReader::any(CheckpointSource::open(&path)?);
    assert_eq!(reader.entry("x.y")?, (&[2i64][..], Dtype::I64));
    assert_eq!(reader.parts("x.y")?[0].bytes, vec![7u8; 16]);
    assert!(matches!(reader.parts("z"), Err(WeightsError::NoTensor { .. })));
    assert!(read(&path)? == tensors);
    Ok(())
}
