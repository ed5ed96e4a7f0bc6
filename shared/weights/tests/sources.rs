//! One file, shards and directories are the same checkpoint; a shard that is not right is named.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Outcome, config, filled, read, write};
use weights::{
    CanonicalReader, CheckpointSource, InitOptions, ModelDir, TensorPlan, WeightsError, WriteOptions,
    checkpoint_files, checkpoint_sha256, index_path, init_model, init_model_as, inspect, lm_inventory,
    lm_sha256, preset_tokenizer, sha256_file, verify, write_checkpoint,
};

const SHARD: u64 = 300_000;

/// A tiny model directory whose language model lies in shards.
fn sharded(dir: &Path, seed: u64, threads: usize) -> Outcome {
    let write = WriteOptions { shard_size: Some(SHARD), threads: Some(threads) };
    init_model_as(dir, &config(16, 2)?, preset_tokenizer("tiny")?, InitOptions { seed, write })?;
    Ok(())
}

#[test]
fn shards_hold_the_same_tensors_as_one_file_on_any_number_of_threads() -> Outcome {
    let root = tempfile::tempdir()?;
    let (one, many) = (root.path().join("one"), root.path().join("many"));
    init_model(&one, "tiny", 5)?;
    sharded(&many, 5, 3)?;
    let whole = read(&ModelDir::new(&one).lm())?;
    let files = checkpoint_files(&ModelDir::new(&many).lm())?;
    assert!(files.len() > 3, "{files:?}");
    let mut joined = BTreeMap::new();
    for shard in &files[1..] {
        let tensors = read(shard)?;
        assert!(tensors.values().map(|t| t.2.len() as u64).sum::<u64>() <= SHARD);
        joined.extend(tensors);
    }
    assert!(whole == joined);
    sharded(&root.path().join("again"), 5, 1)?;
    for shard in &files {
        let again = root.path().join("again").join(shard.file_name().ok_or("a name")?);
        assert_eq!(sha256_file(shard)?, sha256_file(&again)?);
    }
    Ok(())
}

#[test]
fn a_sharded_model_directory_is_opened_hashed_and_verified_as_any_other() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    sharded(&dir, 0, 2)?;
    let info = verify(&dir)?;
    let lm = ModelDir::new(&dir).lm();
    let wanted = lm_inventory(&info.config.lm);
    for path in [lm.as_path(), &dir, &index_path(&lm)] {
        assert_eq!(CanonicalReader::open(path, &wanted)?.tensors().count(), wanted.len());
        assert_eq!(checkpoint_sha256(path)?, info.lm.sha256);
    }
    // What a registration keeps is enough to know the model again.
    let kept = info.files.iter().map(|f| (f.name.as_str(), f.sha256.as_str()));
    assert_eq!(lm_sha256(kept).as_ref(), Some(&info.lm.sha256));
    for path in checkpoint_files(&lm)? {
        let name = path.file_name().ok_or("a name")?.to_string_lossy().into_owned();
        assert_eq!(info.file(&name).map(|f| &f.sha256), Some(&sha256_file(&path)?));
    }
    let parameters: i64 = wanted.iter().map(|s| s.shape.iter().product::<i64>()).sum();
    assert_eq!(info.lm_parameters, parameters as u64);
    // One byte of one shard changes the identity.
    let shard = &checkpoint_files(&lm)?[2];
    let mut bytes = std::fs::read(shard)?;
    *bytes.last_mut().ok_or("bytes")? ^= 1;
    std::fs::write(shard, bytes)?;
    assert_ne!(inspect(&dir)?.lm.sha256, info.lm.sha256);
    Ok(())
}

#[test]
fn the_identity_of_a_single_file_is_its_hash() -> Outcome {
    let root = tempfile::tempdir()?;
    let info = init_model(&root.path().join("m"), "tiny", 0)?;
    let hash = &info.file("model.safetensors").ok_or("there")?.sha256;
    assert_eq!(&info.lm.sha256, hash);
    assert_eq!(
        lm_sha256(info.files.iter().map(|f| (f.name.as_str(), f.sha256.as_str()))).as_ref(),
        Some(hash)
    );
    assert_eq!(lm_sha256([("config.json", "00")].into_iter()), None);
    Ok(())
}

#[test]
fn a_shard_that_is_missing_or_does_not_hold_what_the_index_says_is_named() -> Outcome {
    let root = tempfile::tempdir()?;
    let dir = root.path().join("m");
    sharded(&dir, 0, 2)?;
    let files = checkpoint_files(&dir)?;
    let (index, first, second) = (&files[0], &files[1], &files[2]);
    let (name, moved) =
        (first.file_name().ok_or("name")?.to_string_lossy().into_owned(), root.path().join("x"));
    std::fs::rename(first, &moved)?;
    let error = verify(&dir).err().ok_or("must be refused")?;
    assert!(matches!(&error, WeightsError::MissingShard { shard, .. } if *shard == name), "{error}");

    let whole = read(&moved)?;
    let mut cut = whole.clone();
    let gone = cut.pop_last().ok_or("tensors")?.0;
    write(first, &cut)?;
    let error = verify(&dir).err().ok_or("must be refused")?;
    assert!(matches!(&error, WeightsError::NotInShard { name, .. } if *name == gone), "{error}");

    let mut more = whole.clone();
    more.insert("stowaway".into(), whole[&gone].clone());
    write(first, &more)?;
    let error = verify(&dir).err().ok_or("must be refused")?;
    assert!(matches!(&error, WeightsError::NotInIndex { name, .. } if name == "stowaway"), "{error}");

    // A tensor in two shards is in the wrong one of them.
    let mut twice = whole.clone();
    let (other, tensor) = read(second)?.pop_first().ok_or("tensors")?;
    twice.insert(other.clone(), tensor);
    write(first, &twice)?;
    let error = verify(&dir).err().ok_or("must be refused")?;
    assert!(matches!(&error, WeightsError::NotInIndex { name, .. } if *name == other), "{error}");

    std::fs::rename(&moved, first)?;
    std::fs::copy(second, dir.join("model.safetensors"))?;
    let error = verify(&dir).err().ok_or("must be refused")?;
    assert!(matches!(error, WeightsError::Ambiguous { .. }), "{error}");
    std::fs::remove_file(dir.join("model.safetensors"))?;
    verify(&dir)?;

    let text = std::fs::read_to_string(index)?;
    for (bad, word) in [
        ("{\"weight_map\": {}}".to_string(), "names no tensors"),
        ("{}".to_string(), "weight_map"),
        (text[..text.len() / 2].to_string(), "EOF"),
        (text.replace(&name, "../elsewhere.safetensors"), "plain file name"),
    ] {
        std::fs::write(index, bad)?;
        let error = verify(&dir).err().ok_or("must be refused")?;
        assert!(matches!(error, WeightsError::BadIndex { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    Ok(())
}

#[test]
fn a_tensor_larger_than_a_shard_and_a_writer_that_fails_leave_nothing_behind() -> Outcome {
    let root = tempfile::tempdir()?;
    let path = root.path().join("m.safetensors");
    let tensors = filled(&lm_inventory(&config(16, 1)?.lm));
    let plan: Vec<TensorPlan> = tensors
        .iter()
        .map(|(n, (dtype, shape, _))| TensorPlan { name: n.clone(), dtype: *dtype, shape: shape.clone() })
        .collect();
    let none = BTreeMap::new();
    let tight = WriteOptions { shard_size: Some(10), threads: None };
    let error = write_checkpoint(&path, &plan, &none, tight, |t, sink| sink(&tensors[&t.name].2));
    assert!(matches!(error, Err(WeightsError::BadShardSize { bytes: 10, .. })));

    let options = WriteOptions { shard_size: Some(SHARD), threads: Some(2) };
    let short = write_checkpoint(&path, &plan, &none, options, |t, sink| sink(&tensors[&t.name].2[1..]));
    assert!(matches!(short, Err(WeightsError::WrongWrite { .. })));
    let long = write_checkpoint(&path, &plan, &none, options, |t, sink| {
        sink(&tensors[&t.name].2)?;
        sink(&[0])
    });
    assert!(matches!(long, Err(WeightsError::WrongWrite { .. })));
    assert_eq!(std::fs::read_dir(root.path())?.count(), 0);

    let files = write_checkpoint(&path, &plan, &none, options, |t, sink| {
        tensors[&t.name].2.chunks(1000).try_for_each(&mut *sink)
    })?;
    assert_eq!(std::fs::read_dir(root.path())?.count(), files.len());
    let source = CheckpointSource::open(&path)?;
    for (name, (_, _, bytes)) in &tensors {
        assert!(source.tensor(name)?.1 == bytes, "{name}");
    }
    Ok(())
}
