use std::collections::BTreeMap;
use std::path::Path;

use nn::{LoraPair, NnError, dtype_of, tensor_bytes, tensor_from_file};
use serde_json::{Value, json};
use tch::Tensor;
use weights::{
    LmConfig, NameReport, SafetensorsFile, SafetensorsWriter, TensorPlan, TensorSpec, WeightsError,
    temporary_beside,
};

use super::{LoraConfig, Site, sites};
use crate::PersonaplexError;

/// File of the adapter tensors.
pub const LORA_FILE: &str = "lora.safetensors";
/// File of the model's sizes and the adapter's rank and scaling.
pub const LORA_CONFIG_FILE: &str = "config.json";
const FORMAT_VERSION: &str = "1";

/// Where an adapter comes from; stored in its file's header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterMeta {
    /// SHA-256 of the base `model.safetensors`.
    pub base_sha256: String,
    pub step: u64,
    pub dataset_hash: String,
}

/// Adapter tensors apart from a model, by kyutai's names, one pair per linear and depformer step.
#[derive(Debug)]
pub struct Adapter {
    config: LoraConfig,
    meta: AdapterMeta,
    tensors: BTreeMap<String, Tensor>,
}

/// Names and shapes an adapter file must hold.
fn inventory(c: &LmConfig, lora: &LoraConfig) -> Vec<TensorSpec> {
    let mut specs = Vec::new();
    for site in sites(c, lora.skip_depformer) {
        for step in 0..site.steps {
            let module = site.module_of(step);
            specs.push(TensorSpec {
                name: format!("{module}.lora_A.weight"),
                shape: vec![lora.rank, site.inputs],
            });
            specs.push(TensorSpec {
                name: format!("{module}.lora_B.weight"),
                shape: vec![site.outputs, lora.rank],
            });
        }
    }
    specs
}

impl Adapter {
    /// Copies pairs off a model.
    pub(super) fn collect<'a>(
        config: &LoraConfig,
        pairs: impl Iterator<Item = (&'a Site, &'a LoraPair)>,
    ) -> Self {
        let mut tensors = BTreeMap::new();
        for (site, pair) in pairs {
            for step in 0..site.steps {
                let module = site.module_of(step);
                for (half, t) in [("A", &pair.a), ("B", &pair.b)] {
                    let one = if site.per_step { t.select(0, step) } else { t.shallow_clone() };
                    tensors.insert(format!("{module}.lora_{half}.weight"), one.detach().copy());
                }
            }
        }
        Self { config: config.clone(), meta: AdapterMeta::default(), tensors }
    }

    /// Reads `lora.safetensors` and `config.json` of an adapter directory for the model `c`.
    pub fn load(dir: &Path, c: &LmConfig) -> Result<Self, PersonaplexError> {
        let path = dir.join(LORA_CONFIG_FILE);
        let text = std::fs::read_to_string(&path).map_err(PersonaplexError::io("read", &path))?;
        let bad = |detail: String| PersonaplexError::AdapterConfig { path: path.clone(), detail };
        let config: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let rank = config["lora_rank"].as_i64().ok_or_else(|| bad("no lora_rank".into()))?;
        let scaling = config["lora_scaling"].as_f64().ok_or_else(|| bad("no lora_scaling".into()))?;
        Self::read(&dir.join(LORA_FILE), c, rank, scaling)
    }

    /// Reads one adapter file; fails on every missing, unexpected or wrong-shaped name. Whether the depformer is covered
    /// is seen from the names.
    pub fn read(path: &Path, c: &LmConfig, rank: i64, scaling: f64) -> Result<Self, PersonaplexError> {
        let file = SafetensorsFile::open(path)?;
        let skip_depformer =
            !file.tensors().any(|(n, _)| n.starts_with("depformer") || n.starts_with("linears."));
        let config = LoraConfig { rank, scaling, skip_depformer };
        config.validate()?;
        let report = NameReport::compare(&file, &inventory(c, &config));
        if !report.is_clean() {
            return Err(WeightsError::Names { path: path.to_path_buf(), report }.into());
        }
        let mut tensors = BTreeMap::new();
        for (name, _) in file.tensors() {
            tensors.insert(name.to_string(), tensor_from_file(&file, name)?);
        }
        let text = |key: &str| file.metadata().get(key).cloned().unwrap_or_default();
        let meta = AdapterMeta {
            base_sha256: text("base_sha256"),
            step: text("step").parse().unwrap_or(0),
            dataset_hash: text("dataset_hash"),
        };
        Ok(Self { config, meta, tensors })
    }

    /// Writes `lora.safetensors` and `config.json` into `dir`, which is created when missing. The model's sizes travel
    /// with the adapter, so the reference server can load it (`--lora-weight`, `--config-path`).
    pub fn save(&self, dir: &Path, c: &LmConfig, meta: &AdapterMeta) -> Result<(), PersonaplexError> {
        std::fs::create_dir_all(dir).map_err(PersonaplexError::io("create", dir))?;
        let mut plan = Vec::new();
        for (name, tensor) in &self.tensors {
            plan.push(TensorPlan { name: name.clone(), dtype: dtype_of(tensor)?, shape: tensor.size() });
        }
        let metadata = BTreeMap::from(
            [
                ("format_version", FORMAT_VERSION.to_string()),
                ("base_sha256", meta.base_sha256.clone()),
                ("rank", self.config.rank.to_string()),
                ("scaling", self.config.scaling.to_string()),
                ("step", meta.step.to_string()),
                ("dataset_hash", meta.dataset_hash.clone()),
            ]
            .map(|(k, v)| (k.to_string(), v)),
        );
        let mut writer = SafetensorsWriter::create(&dir.join(LORA_FILE), plan, &metadata)?;
        for (name, tensor) in &self.tensors {
            writer.tensor(name, &tensor_bytes(tensor)?)?;
        }
        writer.finish()?;
        let mut config = json!(c);
        config["lora"] = json!(true);
        config["lora_rank"] = json!(self.config.rank);
        config["lora_scaling"] = json!(self.config.scaling);
        let path = dir.join(LORA_CONFIG_FILE);
        let temporary = temporary_beside(&path);
        std::fs::write(&temporary, format!("{config:#}\n"))
            .map_err(PersonaplexError::io("write", &temporary))?;
        std::fs::rename(&temporary, &path).map_err(PersonaplexError::io("rename", &temporary))
    }

    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    pub fn meta(&self) -> &AdapterMeta {
        &self.meta
    }

    /// Fails unless the adapter has exactly the tensors that `c` needs.
    pub(super) fn check(&self, c: &LmConfig) -> Result<(), PersonaplexError> {
        for spec in inventory(c, &self.config) {
            let found = self.tensors.get(&spec.name).map(Tensor::size).unwrap_or_default();
            if found != spec.shape {
                return Err(NnError::Shape { name: spec.name, wanted: spec.shape, found }.into());
            }
        }
        Ok(())
    }

    /// A and B of one step of a site.
    pub(super) fn pair(&self, site: &Site, step: i64) -> LoraPair {
        let get = |half: &str| {
            self.tensors[&format!("{}.lora_{half}.weight", site.module_of(step))].shallow_clone()
        };
        LoraPair { a: get("A"), b: get("B"), scaling: self.config.scaling }
    }

    /// A `[S, rank, in]` and B `[S, out, rank]` of a site.
    pub(super) fn stacked(&self, site: &Site) -> (Tensor, Tensor) {
        let pairs: Vec<LoraPair> = (0..site.steps).map(|s| self.pair(site, s)).collect();
        let a: Vec<&Tensor> = pairs.iter().map(|p| &p.a).collect();
        let b: Vec<&Tensor> = pairs.iter().map(|p| &p.b).collect();
        (Tensor::stack(&a, 0), Tensor::stack(&b, 0))
    }
}
