//! Trained embedding tables in adapter files, and models of which everything was trained.

mod lora_common;

use std::borrow::Cow;
use std::path::PathBuf;

use lora_common::{Outcome, Tensors, values};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::lora::{
    AdapterFile, AdapterMeta, Layout, LoraConfig, LoraError, adapter_inventory, embedding_tables,
    export_adapter, export_whole, merge_model, save_adapter, whole_header, whole_meta,
};
use weights::{Dtype, LmConfig, ModelDir, SafetensorsFile, WeightsError, init_model, sha256_file, verify};

const CONFIG: LoraConfig = LoraConfig { rank: 2, scaling: 1.5, skip_depformer: true, embeddings: true };

struct World {
    root: tempfile::TempDir,
    lm: LmConfig,
    meta: AdapterMeta,
}

impl World {
    /// A tiny model, and an adapter with trained tables of random f32 values.
    fn new() -> Outcome<Self> {
        let root = tempfile::tempdir()?;
        init_model(&root.path().join("base"), "tiny", 5)?;
        let base = ModelDir::new(root.path().join("base"));
        let lm = base.load_config()?.lm;
        let meta =
            AdapterMeta { base_sha256: sha256_file(&base.lm())?, step: 7, dataset_hash: "data".into() };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let dir = root.path().join("adapter");
        save_adapter(&dir, Layout::Kyutai, &lm, (&CONFIG, &meta, Dtype::F32), |spec| {
            let count = spec.shape.iter().product::<i64>();
            let values = (0..count).flat_map(|_| rng.random_range(-0.1f32..=0.1).to_le_bytes());
            Ok::<_, LoraError>(Cow::Owned(values.collect()))
        })?;
        Ok(Self { root, lm, meta })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn tables(&self) -> Vec<String> {
        embedding_tables(&self.lm).into_iter().map(|t| t.name).collect()
    }

    /// What is wrong with the adapter once its tensors were changed.
    fn complaint(&self, dir: &str, file: &str, change: impl FnOnce(&mut Tensors)) -> Outcome<String> {
        let path = self.path(dir).join(file);
        let mut tensors = Tensors::read(&path)?;
        change(&mut tensors);
        tensors.write(&path)?;
        match AdapterFile::open(&self.path(dir), &self.lm) {
            Err(error) => Ok(error.to_string()),
            Ok(_) => Err("the adapter was accepted".into()),
        }
    }
}

#[test]
fn both_layouts_carry_the_trained_tables_under_their_own_names() -> Outcome {
    let world = World::new()?;
    let (base, adapter) = (world.path("base"), world.path("adapter"));
    export_adapter(&base, &adapter, &world.path("peft"), Layout::Peft)?;
    export_adapter(&base, &world.path("peft"), &world.path("back"), Layout::Kyutai)?;
    let first = AdapterFile::open(&adapter, &world.lm)?;
    assert_eq!((first.config(), first.meta()), (&CONFIG, &world.meta));
    let (ours, peft) = (
        Tensors::read(&adapter.join("lora.safetensors"))?,
        Tensors::read(&world.path("peft/adapter_model.safetensors"))?,
    );
    assert_eq!(ours.metadata["embeddings"], "true");
    for name in world.tables() {
        assert!(ours.all.contains_key(&name), "{name}");
        assert!(peft.all.contains_key(&format!("base_model.model.{name}")), "{name}");
    }
    for dir in ["peft", "back"] {
        let other = AdapterFile::open(&world.path(dir), &world.lm)?;
        assert_eq!(other.config(), &CONFIG);
        for spec in adapter_inventory(&world.lm, &CONFIG) {
            assert_eq!(first.tensor(&spec.name)?, other.tensor(&spec.name)?, "{dir}: {}", spec.name);
        }
    }
    let text = std::fs::read_to_string(world.path("peft/adapter_config.json"))?;
    let config: serde_json::Value = serde_json::from_str(&text)?;
    let saved = config["modules_to_save"].as_array().ok_or("a list")?;
    assert_eq!(saved.len(), world.tables().len());
    assert!(saved.contains(&"text_emb".into()) && saved.contains(&"depformer_emb.0".into()));
    Ok(())
}

#[test]
fn a_file_has_every_table_or_none() -> Outcome {
    let world = World::new()?;
    let text = world.complaint("adapter", "lora.safetensors", |t| {
        t.all.remove("emb.1.weight");
        let cut = t.all.get_mut("text_emb.weight").expect("a table");
        cut.shape.reverse();
        let alien = t.all["emb.0.weight"].clone();
        t.all.insert("emb.99.weight".into(), alien);
    })?;
    for wanted in ["1 missing: emb.1.weight", "1 unexpected: emb.99.weight", "1 wrong shape: text_emb.weight"]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    // The header still says that they are there.
    let text =
        world.complaint("adapter", "lora.safetensors", |t| t.all.retain(|name, _| name.contains("lora_")))?;
    assert!(text.contains(&format!("{} missing: emb.0.weight", world.tables().len())), "{text}");
    Ok(())
}

#[test]
fn modules_stored_whole_are_compared_with_pefts_list() -> Outcome {
    let world = World::new()?;
    export_adapter(&world.path("base"), &world.path("adapter"), &world.path("peft"), Layout::Peft)?;
    let path = world.path("peft/adapter_config.json");
    let configure = |saved: serde_json::Value| -> Outcome {
        let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        config["modules_to_save"] = saved;
        Ok(std::fs::write(&path, config.to_string())?)
    };
    configure(serde_json::json!(["emb", "text_emb", "depformer_emb", "depformer_text_emb"]))?;
    AdapterFile::open(&world.path("peft"), &world.lm)?;
    configure(serde_json::json!(["emb", "depformer_emb", "depformer_text_emb", "out_norm"]))?;
    let text = world.complaint("peft", "adapter_model.safetensors", |_| ())?;
    assert!(text.contains("modules_to_save has \"out_norm\""), "{text}");
    assert!(text.contains("text_emb is in the file but not in modules_to_save"), "{text}");
    Ok(())
}

#[test]
fn merging_takes_the_trained_tables_over_rounded_once() -> Outcome {
    let world = World::new()?;
    let report = merge_model(&world.path("base"), &world.path("adapter"), &world.path("merged"))?;
    assert_eq!(report.embeddings, world.tables().len());
    verify(&world.path("merged"))?;
    let merged = SafetensorsFile::open(&ModelDir::new(world.path("merged")).lm())?;
    let adapter = Tensors::read(&world.path("adapter/lora.safetensors"))?;
    for name in world.tables() {
        let found = values(merged.tensor(&name)?);
        let wanted = adapter.all[&name].bytes.chunks_exact(4);
        let wanted =
            wanted.map(|b| half::bf16::from_f32(f32::from_le_bytes([b[0], b[1], b[2], b[3]])).to_f32());
        assert!(found.into_iter().eq(wanted), "{name}");
    }
    let file = world.path("adapter/lora.safetensors");
    let mut poisoned = Tensors::read(&file)?;
    let table = poisoned.all.get_mut("depformer_emb.3.weight").ok_or("a table")?;
    table.bytes[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    poisoned.write(&file)?;
    let refused = merge_model(&world.path("base"), &world.path("adapter"), &world.path("again"));
    assert!(
        matches!(refused, Err(LoraError::MergeMismatch { ref name, .. }) if name == "depformer_emb.3.weight")
    );
    assert!(!world.path("again").exists());
    Ok(())
}

#[test]
fn an_adapter_says_which_base_it_is_for() -> Outcome {
    let world = World::new()?;
    let adapter = AdapterFile::open(&world.path("adapter"), &world.lm)?;
    assert!(adapter.check_base(&world.meta.base_sha256)?);
    let other = "0".repeat(64);
    let text = adapter.check_base(&other).expect_err("another base").to_string();
    assert!(text.contains(&other) && text.contains(&world.meta.base_sha256), "{text}");
    assert!(!AdapterMeta::default().check_base(&other)?, "a file that names no base fits any");
    Ok(())
}

#[test]
fn a_fully_trained_file_becomes_a_model_beside_its_bases_codec_and_tokenizer() -> Outcome {
    let world = World::new()?;
    let (base, out) = (world.path("base"), world.path("model"));
    // Another seed stands for the values that training left.
    init_model(&world.path("other"), "tiny", 9)?;
    let mut trained = Tensors::read(&ModelDir::new(world.path("other")).lm())?;
    let file = world.path("consolidated.safetensors");
    trained.write(&file)?;
    assert_eq!(whole_meta(&file)?, None);
    let refused = export_whole(&base, &file, &out);
    assert!(matches!(refused, Err(LoraError::NotTrained { .. })));

    trained.metadata = whole_header(&world.meta);
    trained.write(&file)?;
    assert_eq!(whole_meta(&file)?.as_ref(), Some(&world.meta));
    let report = export_whole(&base, &file, &out)?;
    assert!(report.base_named && report.meta == world.meta);
    assert_eq!(report.sha256, sha256_file(&ModelDir::new(&out).lm())?);
    verify(&out)?;
    for name in ["mimi.safetensors", "config.json", "tokenizer.model"] {
        assert_eq!(sha256_file(&base.join(name))?, sha256_file(&out.join(name))?, "{name}");
    }
    let refused = export_whole(&world.path("other"), &file, &world.path("wrong"));
    assert!(matches!(refused, Err(LoraError::WrongBase { .. })));
    let refused = export_whole(&base, &file, &out);
    assert!(matches!(refused, Err(LoraError::Weights(WeightsError::Exists { .. }))));

    trained.all.remove("out_norm.alpha");
    trained.write(&file)?;
    let refused = export_whole(&base, &file, &world.path("short"));
    assert!(matches!(refused, Err(LoraError::Weights(WeightsError::Names { .. }))));
    assert!(!world.path("short").exists() && !world.path("wrong").exists());
    Ok(())
}
