//! Adapter directories: both layouts, every fault in one report, and merging a whole model.

mod lora_common;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lora_common::{Outcome, Tensors, values};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weights::lora::{
    AdapterFile, AdapterMeta, AdapterReport, Layout, LoraConfig, LoraError, adapter_inventory,
    export_adapter, merge_model, save_adapter,
};
use weights::{
    Dtype, InitOptions, LmConfig, ModelDir, SafetensorsFile, WeightsError, WriteOptions, init_model,
    init_model_as, lm_inventory, sha256_file, verify,
};

struct World {
    root: tempfile::TempDir,
    lm: LmConfig,
    meta: AdapterMeta,
}

const CONFIG: LoraConfig = LoraConfig { rank: 3, scaling: 1.7, skip_depformer: false, embeddings: false };

impl World {
    /// A tiny model and an adapter of random f32 values in +-`width`.
    fn new(width: f32) -> Result<Self, LoraError> {
        let root = tempfile::tempdir().map_err(|source| WeightsError::Io {
            action: "create",
            path: "scratch".into(),
            source,
        })?;
        init_model(&root.path().join("base"), "tiny", 5)?;
        let base = ModelDir::new(root.path().join("base"));
        let lm = base.load_config()?.lm;
        let meta =
            AdapterMeta { base_sha256: sha256_file(&base.lm())?, step: 40, dataset_hash: "data".into() };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        save_adapter(
            &root.path().join("adapter"),
            Layout::Kyutai,
            &lm,
            (&CONFIG, &meta, Dtype::F32),
            |spec| {
                let count = spec.shape.iter().product::<i64>();
                let values = (0..count).flat_map(|_| (width * rng.random_range(-1f32..=1.0)).to_le_bytes());
                Ok::<_, LoraError>(Cow::Owned(values.collect()))
            },
        )?;
        Ok(Self { root, lm, meta })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn adapter(&self) -> PathBuf {
        self.path("adapter")
    }

    /// Changes the adapter's tensors and opens it.
    fn damaged(&self, change: impl FnOnce(&mut Tensors)) -> Result<AdapterReport, WeightsError> {
        let file = self.adapter().join("lora.safetensors");
        let mut tensors = Tensors::read(&file)?;
        change(&mut tensors);
        tensors.write(&file)?;
        Ok(report(&self.adapter(), &self.lm))
    }

    /// Changes the adapter's configuration.
    fn configure(&self, file: &Path, change: impl FnOnce(&mut serde_json::Value)) -> Outcome {
        let mut config = serde_json::from_slice(&std::fs::read(file)?)?;
        change(&mut config);
        Ok(std::fs::write(file, config.to_string())?)
    }
}

fn report(dir: &Path, lm: &LmConfig) -> AdapterReport {
    match AdapterFile::open(dir, lm) {
        Err(LoraError::Adapter { report, .. }) => *report,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the adapter was accepted"),
    }
}

#[test]
fn both_layouts_keep_every_tensor_the_configuration_and_the_origin() -> Outcome {
    let world = World::new(0.1)?;
    let base = world.path("base");
    export_adapter(&base, &world.adapter(), &world.path("peft"), Layout::Peft)?;
    export_adapter(&base, &world.path("peft"), &world.path("back"), Layout::Kyutai)?;
    let (first, peft) =
        (AdapterFile::open(&world.adapter(), &world.lm)?, AdapterFile::open(&world.path("peft"), &world.lm)?);
    assert_eq!((first.config(), first.meta()), (&CONFIG, &world.meta));
    assert!((peft.config().scaling - CONFIG.scaling).abs() < 1e-12);
    assert_eq!((peft.config().rank, peft.meta()), (CONFIG.rank, &world.meta));
    for spec in adapter_inventory(&world.lm, &CONFIG) {
        assert_eq!(first.tensor(&spec.name)?, peft.tensor(&spec.name)?, "{}", spec.name);
    }
    let tensors = |dir: &str| Tensors::read(&world.path(dir).join("lora.safetensors"));
    let same = tensors("adapter")?.all.into_iter().zip(tensors("back")?.all);
    assert!(same.into_iter().all(|((n, a), (m, b))| (n, a.bytes, a.shape) == (m, b.bytes, b.shape)));
    assert!(matches!(
        export_adapter(&base, &world.adapter(), &world.path("peft"), Layout::Peft),
        Err(LoraError::Weights(WeightsError::Exists { .. }))
    ));
    Ok(())
}

#[test]
fn the_peft_layout_is_what_peft_writes() -> Outcome {
    let world = World::new(0.1)?;
    export_adapter(&world.path("base"), &world.adapter(), &world.path("peft"), Layout::Peft)?;
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(world.path("peft/adapter_config.json"))?)?;
    let alpha = config["lora_alpha"].as_f64().expect("a number");
    assert!((alpha - CONFIG.scaling * CONFIG.rank as f64).abs() < 1e-12);
    assert_eq!((&config["peft_type"], &config["r"]), (&"LORA".into(), &CONFIG.rank.into()));
    assert_eq!((&config["bias"], &config["fan_in_fan_out"]), (&"none".into(), &false.into()));
    assert_eq!((config["lora_dropout"].as_f64(), &config["use_rslora"]), (Some(0.0), &false.into()));
    let file = SafetensorsFile::open(&world.path("peft/adapter_model.safetensors"))?;
    let targets = config["target_modules"].as_array().expect("a list");
    assert_eq!(file.tensors().count(), 2 * targets.len());
    for target in targets.iter().filter_map(|t| t.as_str()) {
        file.tensor(&format!("base_model.model.{target}.lora_A.weight"))?;
        file.tensor(&format!("base_model.model.{target}.lora_B.weight"))?;
    }
    Ok(())
}

#[test]
fn rank_stabilised_scaling_and_suffix_targets_are_understood() -> Outcome {
    let world = World::new(0.1)?;
    export_adapter(&world.path("base"), &world.adapter(), &world.path("peft"), Layout::Peft)?;
    world.configure(&world.path("peft/adapter_config.json"), |c| {
        c["use_rslora"] = true.into();
        c["lora_alpha"] = (CONFIG.scaling * (CONFIG.rank as f64).sqrt()).into();
        c["target_modules"] = "all-linear".into();
    })?;
    let adapter = AdapterFile::open(&world.path("peft"), &world.lm)?;
    assert!((adapter.config().scaling - CONFIG.scaling).abs() < 1e-12);

    world.configure(&world.path("peft/adapter_config.json"), |c| {
        c["target_modules"] = serde_json::json!(["linear_in", "in_proj", "absent"]);
    })?;
    let text = report(&world.path("peft"), &world.lm).disagreements.join("\n");
    assert!(text.contains("target module \"absent\" has no adapter"), "{text}");
    assert!(text.contains("text_linear is adapted but no target module"), "{text}");
    assert!(!text.contains("linear_in is") && !text.contains("in_projs"), "{text}");
    Ok(())
}

#[test]
fn peft_settings_that_change_the_meaning_of_the_tensors_are_refused_together() -> Outcome {
    let world = World::new(0.1)?;
    export_adapter(&world.path("base"), &world.adapter(), &world.path("peft"), Layout::Peft)?;
    world.configure(&world.path("peft/adapter_config.json"), |c| {
        c["peft_type"] = "LOHA".into();
        c["use_dora"] = true.into();
        c["fan_in_fan_out"] = true.into();
        c["bias"] = "all".into();
        c["rank_pattern"] = serde_json::json!({"text_linear": 8});
        c["modules_to_save"] = serde_json::json!(["emb"]);
    })?;
    let text = report(&world.path("peft"), &world.lm).to_string();
    for wanted in ["LOHA", "use_dora", "fan_in_fan_out", "bias", "rank_pattern", "modules_to_save"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    Ok(())
}

#[test]
fn every_fault_of_the_tensors_is_in_one_report() -> Outcome {
    let world = World::new(0.1)?;
    let found = world.damaged(|t| {
        t.all.remove("text_linear.lora_B.weight");
        let extra = t.all["text_linear.lora_A.weight"].clone();
        t.all.insert("emb.0.lora_A.weight".into(), extra);
        let again = t.all["transformer.layers.0.self_attn.out_projs.0.lora_A.weight"].clone();
        t.all.insert("transformer.layers.0.self_attn.out_proj.lora_A.weight".into(), again);
        let cut = t.all.get_mut("linears.2.lora_A.weight").expect("an adapter");
        cut.shape = vec![cut.shape[1], cut.shape[0]];
        let integers = t.all.get_mut("linears.3.lora_B.weight").expect("an adapter");
        integers.dtype = Dtype::I32;
    })?;
    assert_eq!(found.missing, ["text_linear.lora_B.weight"]);
    assert_eq!(found.unexpected, ["emb.0.lora_A.weight"]);
    assert_eq!(found.duplicate.len(), 1);
    assert_eq!(found.wrong_shape[0].0, "linears.2.lora_A.weight");
    assert_eq!(found.wrong_dtype, [("linears.3.lora_B.weight".to_string(), Dtype::I32)]);
    assert!(found.disagreements.is_empty());
    let text = found.to_string();
    for wanted in ["1 missing", "1 unexpected", "1 given twice", "1 wrong shape", "1 wrong dtype"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    Ok(())
}

#[test]
fn an_adapter_of_another_rank_says_so_under_every_spelling() -> Outcome {
    let world = World::new(0.1)?;
    let config = world.adapter().join("config.json");
    world.configure(&config, |c| c["lora_rank"] = (CONFIG.rank + 1).into())?;
    let all = adapter_inventory(&world.lm, &CONFIG).len();
    let found = report(&world.adapter(), &world.lm);
    assert_eq!((found.wrong_rank.len(), found.wrong_shape.len()), (all, 0));
    assert!(found.disagreements[0].contains("rank is \"3\" in the file's header, not 4"));
    let stacked = world.damaged(|t| t.stack_projections("_proj"))?;
    assert!(stacked.wrong_rank.iter().all(|(_, wanted, found)| (*wanted, *found) == (4, 3)));
    assert!(
        stacked
            .wrong_rank
            .iter()
            .any(|(name, ..)| name == "depformer.layers.0.self_attn.in_proj.lora_A.weight")
    );
    world.configure(&config, |c| c["lora_rank"] = 0.into())?;
    let refused = AdapterFile::open(&world.adapter(), &world.lm);
    assert!(matches!(refused, Err(LoraError::Rank { rank: 0 })));
    Ok(())
}

#[test]
fn contradictions_between_configuration_header_and_model_are_reported() -> Outcome {
    let world = World::new(0.1)?;
    world.configure(&world.adapter().join("config.json"), |c| {
        c["lora_scaling"] = 2.5.into();
        c["lora"] = false.into();
        c["num_heads"] = 1000.into();
    })?;
    let found = world.damaged(|t| {
        t.metadata.insert("format_version".into(), "9".into());
        t.metadata.insert("step".into(), "many".into());
    })?;
    let text = found.disagreements.join("\n");
    for wanted in
        ["scaling is \"1.7\"", "lora is false", "num_heads is 1000", "format_version", "step is \"many\""]
    {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    world.configure(&world.adapter().join("config.json"), |c| c["lora_scaling"] = (-1).into())?;
    let refused = AdapterFile::open(&world.adapter(), &world.lm);
    assert!(matches!(refused, Err(LoraError::Scaling { .. })));
    Ok(())
}

#[test]
fn a_directory_of_no_or_two_layouts_is_refused() -> Outcome {
    let world = World::new(0.1)?;
    let refused = AdapterFile::open(&world.path("base"), &world.lm);
    assert!(matches!(refused, Err(LoraError::Layout { ref found, .. }) if found.contains("neither")));
    std::fs::write(world.adapter().join("adapter_model.safetensors"), b"")?;
    let refused = AdapterFile::open(&world.adapter(), &world.lm);
    assert!(matches!(refused, Err(LoraError::Layout { ref found, .. }) if found.contains("both")));
    Ok(())
}

#[test]
fn a_merged_model_is_rounded_once_verified_and_complete() -> Outcome {
    let world = World::new(0.2)?;
    let (base, out) = (world.path("base"), world.path("merged"));
    let report = merge_model(&base, &world.adapter(), &out)?;
    verify(&out)?;
    assert_eq!(2 * report.merged, adapter_inventory(&world.lm, &CONFIG).len());
    assert!(report.base_named && report.base_sha256 == world.meta.base_sha256);
    assert!(report.worst_error > 1e-5 && report.worst_error < 1e-2, "{report:?}");
    assert!(report.unchanged > 0.0 && report.unchanged < 0.5, "{report:?}");
    assert_eq!(report.merged_sha256, sha256_file(&ModelDir::new(&out).lm())?);
    for name in ["mimi.safetensors", "config.json", "tokenizer.model"] {
        assert_eq!(sha256_file(&base.join(name))?, sha256_file(&out.join(name))?, "{name}");
    }
    assert!(matches!(
        merge_model(&base, &world.adapter(), &out),
        Err(LoraError::Weights(WeightsError::Exists { .. }))
    ));

    // Element by element: the text head, whose one block starts at row 0, summed in f64.
    let (before, after) = (
        SafetensorsFile::open(&ModelDir::new(&base).lm())?,
        SafetensorsFile::open(&ModelDir::new(&out).lm())?,
    );
    let name = "text_linear.weight";
    let (before, after) = (values(before.tensor(name)?), values(after.tensor(name)?));
    let adapter = Tensors::read(&world.adapter().join("lora.safetensors"))?;
    let half = |h: &str| -> Vec<f32> {
        let bytes = &adapter.all[&format!("text_linear.lora_{h}.weight")].bytes;
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let (a, b, dim, rank) = (half("A"), half("B"), world.lm.dim as usize, CONFIG.rank as usize);
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        let (row, column) = (i / dim, i % dim);
        let update: f64 =
            (0..rank).map(|k| f64::from(b[row * rank + k]) * f64::from(a[k * dim + column])).sum();
        let wanted = f64::from(*before) + CONFIG.scaling * update;
        // Half a unit in the last of bf16's 8 bits, and the f32 sum's own error.
        assert!(
            (f64::from(*after) - wanted).abs() <= wanted.abs() / 256.0 + 1e-6,
            "{i}: {after} is not {wanted}"
        );
    }
    Ok(())
}

#[test]
fn a_sharded_base_merges_to_the_same_single_file() -> Outcome {
    let world = World::new(0.1)?;
    let wanted = merge_model(&world.path("base"), &world.adapter(), &world.path("whole"))?;
    let base = ModelDir::new(world.path("base"));
    let write = WriteOptions { shard_size: Some(base.lm().metadata()?.len() / 3), threads: None };
    let options = InitOptions { seed: 5, write };
    let sharded = world.path("sharded");
    init_model_as(&sharded, &base.load_config()?, weights::preset_tokenizer("tiny")?, options)?;
    assert!(!ModelDir::new(&sharded).lm().exists());
    // Another set of files is another base, though it holds the same weights.
    let refused = merge_model(&sharded, &world.adapter(), &world.path("merged"));
    assert!(matches!(refused, Err(LoraError::WrongBase { .. })));
    let file = world.adapter().join("lora.safetensors");
    let mut tensors = Tensors::read(&file)?;
    tensors.metadata.insert("base_sha256".into(), weights::checkpoint_sha256(&sharded)?);
    tensors.write(&file)?;
    let report = merge_model(&sharded, &world.adapter(), &world.path("merged"))?;
    assert_eq!((report.merged, report.worst_error), (wanted.merged, wanted.worst_error));
    let [one, other] = ["whole", "merged"].map(|dir| Tensors::read(&ModelDir::new(world.path(dir)).lm()));
    for ((name, a), (other, b)) in one?.all.into_iter().zip(other?.all) {
        assert!((&name, a.dtype, a.shape) == (&other, b.dtype, b.shape) && a.bytes == b.bytes, "{name}");
    }
    Ok(())
}

#[test]
fn a_skipped_depformer_is_written_as_zeros_for_the_reference_server_and_read_as_skipped() -> Outcome {
    let world = World::new(0.1)?;
    let config = LoraConfig { skip_depformer: true, ..CONFIG };
    let dir = world.path("skipping");
    let ones = |spec: &weights::TensorSpec| {
        let count = spec.shape.iter().product::<i64>() as usize;
        Ok::<_, LoraError>(Cow::Owned(vec![63; 2 * count]))
    };
    save_adapter(&dir, Layout::Kyutai, &world.lm, (&config, &world.meta, Dtype::BF16), ones)?;
    let (file, adapter) =
        (Tensors::read(&dir.join("lora.safetensors"))?, AdapterFile::open(&dir, &world.lm)?);
    let (own, all) = (adapter_inventory(&world.lm, &config), adapter_inventory(&world.lm, &CONFIG));
    assert_eq!((adapter.config(), file.all.len()), (&config, all.len()));
    for spec in &all {
        let wanted = if own.contains(spec) { 63 } else { 0 };
        assert!(file.all[&spec.name].bytes.iter().all(|b| *b == wanted), "{}", spec.name);
        assert_eq!(adapter.tensor(&spec.name).is_ok(), wanted == 63, "{}", spec.name);
    }
    export_adapter(&world.path("base"), &dir, &world.path("peft"), Layout::Peft)?;
    let peft = Tensors::read(&world.path("peft/adapter_model.safetensors"))?;
    assert_eq!(peft.all.len(), own.len(), "PEFT names its targets and needs no zeros");

    let mut file = file;
    file.all.get_mut("linears.1.lora_B.weight").expect("filled").bytes[0] = 1;
    file.write(&dir.join("lora.safetensors"))?;
    let text = report(&dir, &world.lm).to_string();
    assert!(text.contains("linears.1.lora_B.weight is not zero"), "{text}");
    Ok(())
}

#[test]
fn an_update_below_the_resolution_of_the_base_is_seen_in_the_report() -> Outcome {
    let world = World::new(1e-6)?;
    let report = merge_model(&world.path("base"), &world.adapter(), &world.path("merged"))?;
    assert!(report.unchanged > 0.99, "{report:?}");
    Ok(())
}

#[test]
fn another_base_a_poisoned_adapter_and_a_wrong_checkpoint_leave_nothing_behind() -> Outcome {
    let world = World::new(0.1)?;
    let out = world.path("merged");
    init_model(&world.path("other"), "tiny", 6)?;
    let refused = merge_model(&world.path("other"), &world.adapter(), &out);
    assert!(matches!(refused, Err(LoraError::WrongBase { .. })));

    let file = world.adapter().join("lora.safetensors");
    let mut tensors = Tensors::read(&file)?;
    let poisoned = tensors.all.get_mut("linears.4.lora_B.weight").expect("an adapter");
    poisoned.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    tensors.write(&file)?;
    let refused = merge_model(&world.path("base"), &world.adapter(), &out);
    assert!(matches!(refused, Err(LoraError::MergeMismatch { ref name, .. }) if name == "linears.4"));

    let model = ModelDir::new(world.path("other")).lm();
    let mut tensors = Tensors::read(&model)?;
    tensors.all.remove(&lm_inventory(&world.lm)[0].name);
    tensors.write(&model)?;
    let refused = merge_model(&world.path("other"), &world.adapter(), &out);
    assert!(matches!(refused, Err(LoraError::Weights(WeightsError::Names { .. }))));
    let left: Vec<_> =
        std::fs::read_dir(world.root.path())?.filter_map(Result::ok).map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    Ok(())
}
