//! Adapters and merging against kyutai's fine-tuning code (golden set c_lora); every size comes from the set.

mod lora_common;

use std::path::{Path, PathBuf};

use lora_common::{Outcome, Tensors, values};
use serde_json::Value;
use weights::lora::{AdapterFile, MergeReport, adapter_inventory, merge_file};
use weights::{LmConfig, SafetensorsFile, lm_inventory, sha256_file};

#[expect(clippy::disallowed_methods, reason = "where golden data lies is the choice of who runs the tests")]
fn golden(name: &str) -> PathBuf {
    let root = std::env::var("PPX_GOLDEN_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
    Path::new(&root).join("finetune/c_lora").join(name)
}

struct Set {
    expected: Value,
    lm: LmConfig,
    rank: i64,
    scaling: f64,
}

impl Set {
    fn open() -> Result<Self, Box<dyn std::error::Error>> {
        let expected: Value = serde_json::from_slice(&std::fs::read(golden("expected.json"))?)?;
        let lm = serde_json::from_value(expected["config"].clone())?;
        let rank = expected["rank"].as_i64().ok_or("rank")?;
        let scaling = expected["scaling"].as_f64().ok_or("scaling")?;
        Ok(Self { expected, lm, rank, scaling })
    }

    fn adapter(&self, path: &Path) -> Result<AdapterFile, Box<dyn std::error::Error>> {
        Ok(AdapterFile::open_file(path, &self.lm, self.rank, self.scaling)?)
    }

    fn merge(&self, adapter: &Path, out: &Path) -> Result<MergeReport, Box<dyn std::error::Error>> {
        let base = golden("base_personaplex_names.safetensors");
        Ok(merge_file(&base, &self.lm, &self.adapter(adapter)?, out)?)
    }
}

#[test]
fn the_adapters_have_the_reference_tensors_and_parameters() -> Outcome {
    let set = Set::open()?;
    for run in ["all", "backbone"] {
        let path = golden(&format!("lora_{run}.safetensors"));
        let adapter = set.adapter(&path)?;
        assert_eq!(adapter.config().skip_depformer, run == "backbone");
        let specs = adapter_inventory(&set.lm, adapter.config());
        let wanted = &set.expected["runs"][run];
        assert_eq!(Some(specs.len() as u64), wanted["n_lora_tensors"].as_u64());
        let parameters: i64 = specs.iter().map(|s| s.shape.iter().product::<i64>()).sum();
        assert_eq!(Some(parameters), wanted["n_lora_params"].as_i64());
        let file = SafetensorsFile::open(&path)?;
        for spec in specs {
            assert_eq!(adapter.tensor(&spec.name)?, file.tensor(&spec.name)?.1, "{}", spec.name);
        }
    }
    Ok(())
}

#[test]
fn merging_gives_the_reference_weights() -> Outcome {
    let root = tempfile::tempdir()?;
    let set = Set::open()?;
    let out = root.path().join("merged.safetensors");
    let base = golden("base_personaplex_names.safetensors");
    let before = sha256_file(&base)?;
    let report = set.merge(&golden("lora_all.safetensors"), &out)?;
    assert_eq!(sha256_file(&base)?, before, "the base is only read");
    assert_eq!(Some(2 * report.merged as u64), set.expected["runs"]["all"]["n_lora_tensors"].as_u64());
    assert!(report.worst_error < 1e-5 && report.unchanged < 0.01, "{report:?}");
    assert_eq!((&report.base_sha256, report.merged_sha256), (&before, sha256_file(&out)?));
    assert!(!report.base_named, "the set's adapters name no base");

    let (found, wanted) = (
        SafetensorsFile::open(&out)?,
        SafetensorsFile::open(&golden("merged_all_personaplex_names.safetensors"))?,
    );
    assert_eq!(found.tensors().count(), SafetensorsFile::open(&base)?.tensors().count());
    // A trimmed set leaves out what merging does not touch and what repeats.
    assert!(wanted.tensors().count() > 0);
    for (name, entry) in wanted.tensors() {
        let (found, wanted) = (values(found.tensor(name)?), values(wanted.tensor(name)?));
        assert_eq!(found.len() as i64, entry.shape.iter().product::<i64>());
        let worst = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
        assert!(worst <= 1e-6, "{name}: largest difference {worst:e}");
    }
    Ok(())
}

#[test]
fn a_backbone_adapter_leaves_the_depformer_and_its_heads_as_they_were() -> Outcome {
    let root = tempfile::tempdir()?;
    let set = Set::open()?;
    let out = root.path().join("merged.safetensors");
    set.merge(&golden("lora_backbone.safetensors"), &out)?;
    let (base, merged) =
        (SafetensorsFile::open(&golden("base_personaplex_names.safetensors"))?, SafetensorsFile::open(&out)?);
    for spec in lm_inventory(&set.lm) {
        let same = base.tensor(&spec.name)?.1 == merged.tensor(&spec.name)?.1;
        let adapted = spec.shape.len() == 2
            && (spec.name.starts_with("transformer.") || spec.name.starts_with("text_linear."));
        assert_eq!(same, !adapted, "{}", spec.name);
    }
    Ok(())
}

#[test]
fn the_same_adapters_under_stacked_and_peft_names_merge_to_the_same_bytes() -> Outcome {
    let root = tempfile::tempdir()?;
    let set = Set::open()?;
    let plain = golden("lora_all.safetensors");
    let merged = |adapter: &Path, name: &str| -> Result<String, Box<dyn std::error::Error>> {
        Ok(set.merge(adapter, &root.path().join(format!("merged-{name}")))?.merged_sha256)
    };
    let wanted = merged(&plain, "plain")?;
    let peft = |name: String| format!("base_model.model.{name}");
    let default = |name: String| name.replace("_A.weight", "_A.default.weight").replace("_B.", "_B.default.");
    type Rename<'a> = &'a dyn Fn(String) -> String;
    let spellings: [(&str, &str, Rename); 4] = [
        ("older", "_proj", &|name| name),
        ("published", "_proj_weight", &|name| name),
        ("peft", "_projs", &peft),
        ("peft-stacked", "_proj", &|name| default(peft(name))),
    ];
    for (spelling, projection, rename) in spellings {
        let mut tensors = Tensors::read(&plain)?;
        if projection != "_projs" {
            tensors.stack_projections(projection);
        }
        tensors.rename(rename);
        let path = root.path().join(spelling);
        tensors.write(&path)?;
        assert_eq!(merged(&path, spelling)?, wanted, "{spelling}");
    }
    Ok(())
}
