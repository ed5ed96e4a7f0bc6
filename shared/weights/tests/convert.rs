//! Any spelling and any split becomes one canonical file or canonical shards.

mod common;

use common::{Outcome, Tensors, by_step, config, filled, per_step, read, write};
use half::bf16;
use weights::{
    CheckpointSource, ConvertOptions, Dtype, InitOptions, ModelConfig, WeightsError, WriteOptions, convert,
    init_model, init_model_as, lm_inventory, mimi_inventory, preset_tokenizer, verify, verify_weights,
};

#[test]
fn another_spelling_becomes_the_published_one_in_one_file_or_in_shards() -> Outcome {
    let root = tempfile::tempdir()?;
    let config = config(16, 2)?;
    let published = filled(&lm_inventory(&config.lm));
    let input = root.path().join("in.safetensors");
    for (i, tensors) in [per_step(&published, 16), by_step(&published, &config.lm)?].iter().enumerate() {
        write(&input, tensors)?;
        let options = ConvertOptions { config: Some(config.clone()), ..Default::default() };
        let (one, many) = (
            root.path().join(format!("one{i}.safetensors")),
            root.path().join(format!("many{i}.safetensors")),
        );
        let report = convert(&input, &one, &options)?;
        assert_eq!(report.written.spelling, "published");
        assert_ne!(report.from, "published");
        assert!(read(&one)? == published);
        let write = WriteOptions { shard_size: Some(400_000), threads: None };
        let report = convert(&one, &many, &ConvertOptions { write, ..options })?;
        assert!(report.written.files.len() > 2, "{:?}", report.written.files);
        let source = CheckpointSource::open(&many)?;
        for (name, (_, _, bytes)) in &published {
            assert!(source.tensor(name)?.1 == bytes, "{name}");
        }
        verify_weights(&many, Some(&config))?;
        let taken =
            convert(&one, &many, &ConvertOptions { config: Some(config.clone()), ..Default::default() });
        assert!(matches!(taken, Err(WeightsError::Exists { .. })));
    }
    Ok(())
}

#[test]
fn types_change_on_request_only_and_parts_of_two_types_become_the_wider() -> Outcome {
    let root = tempfile::tempdir()?;
    let config = config(16, 1)?;
    let published = filled(&lm_inventory(&config.lm));
    let (input, wide, narrow) =
        (root.path().join("in"), root.path().join("wide"), root.path().join("narrow"));
    write(&input, &published)?;
    let with = |dtype| ConvertOptions { config: Some(config.clone()), dtype, ..Default::default() };
    let report = convert(&input, &wide, &with(Some(Dtype::F32)))?;
    assert_eq!(report.written.dtypes.keys().collect::<Vec<_>>(), [&"F32"]);
    for (name, (_, _, bytes)) in read(&wide)? {
        let there = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let here = published[&name].2.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32());
        assert!(there.eq(here), "{name}");
    }
    convert(&wide, &narrow, &with(Some(Dtype::BF16)))?;
    assert!(read(&narrow)? == published);
    let refused = convert(&input, &root.path().join("x"), &with(Some(Dtype::I8)));
    assert!(matches!(refused, Err(WeightsError::InvalidConfig { .. })));

    // One step of one layer in F32: the joined tensor holds it exactly.
    let mut steps = per_step(&published, 16);
    let name = "depformer.layers.0.self_attn.in_projs.3.weight";
    let (dtype, _, bytes) = steps.get_mut(name).ok_or("there")?;
    *dtype = Dtype::F32;
    *bytes = bytes
        .chunks_exact(2)
        .flat_map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32().to_le_bytes())
        .collect();
    write(&input, &steps)?;
    let out = root.path().join("mixed");
    convert(&input, &out, &with(None))?;
    let mixed = read(&out)?;
    let joined = &mixed["depformer.layers.0.self_attn.in_proj_weight"];
    assert_eq!(joined.0, Dtype::F32);
    assert_eq!(mixed.values().filter(|t| t.0 == Dtype::F32).count(), 1);
    Ok(())
}

#[test]
fn a_codec_is_known_by_its_quantizer() -> Outcome {
    let root = tempfile::tempdir()?;
    let config = config(16, 2)?;
    let published = filled(&mimi_inventory(&config.mimi));
    let old: Tensors = published
        .iter()
        .map(|(n, t)| {
            (
                n.replace("embedding_sum", "embed_avg")
                    .replace("cluster_usage", "cluster_size")
                    .replace("_initialized", "inited"),
                t.clone(),
            )
        })
        .collect();
    let (input, output) = (root.path().join("in"), root.path().join("out"));
    write(&input, &old)?;
    let options = ConvertOptions { config: Some(config.clone()), ..Default::default() };
    assert_eq!(convert(&input, &output, &options)?.from, "old codebook names");
    assert!(read(&output)? == published);
    let moshi = ConvertOptions { init_from_moshi: true, ..options };
    assert!(convert(&input, &root.path().join("x"), &moshi).is_err());
    Ok(())
}

#[test]
fn a_model_directory_is_converted_whole_and_a_damaged_one_leaves_nothing() -> Outcome {
    let root = tempfile::tempdir()?;
    let (from, to, back) = (root.path().join("a"), root.path().join("b"), root.path().join("c"));
    let first = init_model(&from, "tiny", 3)?;
    let write = WriteOptions { shard_size: Some(400_000), threads: Some(2) };
    convert(&from, &to, &ConvertOptions { write, ..Default::default() })?;
    let sharded = verify(&to)?;
    assert!(sharded.lm.files.len() > 2 && sharded.mimi.files.len() == 1);
    convert(&to, &back, &ConvertOptions::default())?;
    let again = verify(&back)?;
    assert_eq!(again.lm.sha256, first.lm.sha256);
    assert_eq!(again.files, first.files);

    std::fs::remove_file(from.join("mimi.safetensors"))?;
    let out = root.path().join("d");
    assert!(convert(&from, &out, &ConvertOptions::default()).is_err());
    assert!(!out.exists());
    assert_eq!(std::fs::read_dir(root.path())?.count(), 3);
    Ok(())
}

#[test]
fn sizes_come_from_the_configuration_beside_the_weights_or_the_7b() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    let mut shape = config(16, 1)?;
    shape.lm.num_layers = 1;
    init_model_as(&dir, &shape, preset_tokenizer("tiny")?, InitOptions::default())?;
    verify_weights(&dir.join("model.safetensors"), None)?;
    verify_weights(&dir.join("mimi.safetensors"), None)?;
    let tiny = ModelConfig::preset("tiny")?;
    assert!(matches!(verify_weights(&dir, Some(&tiny)), Err(WeightsError::Names { .. })));
    std::fs::rename(dir.join("model.safetensors"), root.path().join("alone"))?;
    let error = verify_weights(&root.path().join("alone"), None).err().ok_or("the 7B is wanted")?;
    assert!(matches!(error, WeightsError::Names { .. }), "{error}");
    Ok(())
}
