use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::names::plain;
use super::{LoraConfig, LoraError, Site, embedding_tables, sites};
use crate::{LmConfig, TensorSpec, WeightsError};

/// Configuration of the reference layout: the model's sizes and the adapter's rank and scaling.
pub const KYUTAI_CONFIG_FILE: &str = "config.json";
/// Configuration of the PEFT layout.
pub const PEFT_CONFIG_FILE: &str = "adapter_config.json";

/// Keys of the model's sizes that decide what an adapter's tensors mean.
const SIZES: [&str; 13] = [
    "dim",
    "num_heads",
    "num_layers",
    "hidden_scale",
    "n_q",
    "dep_q",
    "card",
    "text_card",
    "delays",
    "depformer_dim",
    "depformer_num_heads",
    "depformer_num_layers",
    "depformer_dim_feedforward",
];

/// What a configuration says of its adapter.
#[derive(Debug)]
pub(super) struct Declared {
    pub rank: i64,
    pub scaling: f64,
    /// Contradictions found so far.
    pub disagreements: Vec<String>,
    /// PEFT's list of module names or suffixes, when it gives one.
    pub targets: Option<Vec<String>>,
    /// PEFT's list of modules that are stored whole; `None` where a configuration does not speak of them.
    pub saved: Option<Vec<String>>,
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LoraError> {
    let text = std::fs::read_to_string(path).map_err(WeightsError::io("read", path))?;
    serde_json::from_str(&text)
        .map_err(|e| LoraError::Config { path: path.to_path_buf(), detail: e.to_string() })
}

/// Numbers by value, so that 4.0 is 4.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Reads the reference layout's configuration and compares its sizes with the model's.
pub(super) fn read_kyutai(path: &Path, lm: &LmConfig) -> Result<Declared, LoraError> {
    let config: Value = read_json(path)?;
    let lacks = |key: &str| LoraError::Config {
        path: path.to_path_buf(),
        detail: format!("{key} is {}", config[key]),
    };
    let rank = config["lora_rank"].as_i64().ok_or_else(|| lacks("lora_rank"))?;
    let scaling = config["lora_scaling"].as_f64().ok_or_else(|| lacks("lora_scaling"))?;
    let mut disagreements = Vec::new();
    if config["lora"] != true {
        disagreements.push(format!("lora is {}, not true", config["lora"]));
    }
    let wanted = json!(lm);
    for key in SIZES {
        if let Some(found) = config.get(key).filter(|found| !same(found, &wanted[key])) {
            disagreements.push(format!("{key} is {found}, the model's is {}", wanted[key]));
        }
    }
    Ok(Declared { rank, scaling, disagreements, targets: None, saved: None })
}

/// The reference layout's configuration: what its server hands to the model's constructor.
pub(super) fn kyutai_json(lm: &LmConfig, lora: &LoraConfig) -> Value {
    let mut config = json!(lm);
    config["lora"] = json!(true);
    config["lora_rank"] = json!(lora.rank);
    config["lora_scaling"] = json!(lora.scaling);
    config
}

/// The keys of `adapter_config.json` that change what the tensors mean; others are of no effect once trained.
#[derive(Deserialize)]
struct PeftConfig {
    peft_type: String,
    r: i64,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    bias: Option<String>,
    #[serde(default)]
    lora_bias: bool,
    #[serde(default)]
    rank_pattern: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    alpha_pattern: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    modules_to_save: Option<Vec<String>>,
    #[serde(default)]
    target_modules: Value,
}

impl PeftConfig {
    /// Settings under which the tensors would mean something else than `scaling * B A` on every linear alike.
    fn unusable(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut refuse = |wrong: bool, what: String| {
            if wrong {
                out.push(what);
            }
        };
        refuse(self.peft_type != "LORA", format!("peft_type is {:?}, not \"LORA\"", self.peft_type));
        for (key, on) in [
            ("use_dora", self.use_dora),
            ("fan_in_fan_out", self.fan_in_fan_out),
            ("lora_bias", self.lora_bias),
        ] {
            refuse(on, format!("{key} is true"));
        }
        let bias = self.bias.as_deref().unwrap_or("none");
        refuse(bias != "none", format!("bias is {bias:?}, not \"none\""));
        for (key, map) in [("rank_pattern", &self.rank_pattern), ("alpha_pattern", &self.alpha_pattern)] {
            refuse(map.as_ref().is_some_and(|m| !m.is_empty()), format!("{key} differs per module"));
        }
        out
    }
}

/// Reads PEFT's configuration. Its scaling is `lora_alpha / r`, or `lora_alpha / sqrt(r)` with `use_rslora`.
pub(super) fn read_peft(path: &Path) -> Result<Declared, LoraError> {
    let config: PeftConfig = read_json(path)?;
    let divisor = if config.use_rslora { (config.r as f64).sqrt() } else { config.r as f64 };
    let targets = config.target_modules.as_array().map(|all| {
        all.iter().map(|t| t.as_str().map_or_else(|| t.to_string(), str::to_string)).collect::<Vec<_>>()
    });
    Ok(Declared {
        rank: config.r,
        scaling: config.lora_alpha / divisor,
        disagreements: config.unusable(),
        targets,
        saved: Some(config.modules_to_save.unwrap_or_default()),
    })
}

/// PEFT's configuration. Modules are listed by their whole names: a suffix such as `linear_in` would reach into the
/// depformer.
pub(super) fn peft_json(lm: &LmConfig, lora: &LoraConfig) -> Value {
    let all = sites(lm, lora.skip_depformer);
    let modules: Vec<String> = all.iter().flat_map(|s| (0..s.steps).map(|step| s.module_of(step))).collect();
    let tables = embedding_tables(lm);
    let saved: Vec<&str> = tables.iter().map(|t| module_of_table(&t.name)).collect();
    json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": null,
        "inference_mode": true,
        "r": lora.rank,
        "lora_alpha": lora.scaling * lora.rank as f64,
        "use_rslora": false,
        "target_modules": modules,
        "bias": "none",
        "lora_dropout": 0.0,
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "modules_to_save": lora.embeddings.then_some(saved),
    })
}

/// Compares PEFT's target list with the modules the file adapts: PEFT matches a whole name or its end after a dot.
pub(super) fn check_targets(targets: &[String], sites: &[Site], disagreements: &mut Vec<String>) {
    // A stacked projection is one module to PEFT, its steps are not.
    let names: Vec<Vec<String>> = sites
        .iter()
        .flat_map(|s| (0..s.steps).map(|step| vec![s.module_of(step), stacked_name(s)]))
        .collect();
    for target in targets.iter().filter(|t| !names.iter().flatten().any(|n| hits(t, n))) {
        disagreements.push(format!("target module {target:?} has no adapter in the file"));
    }
    for module in names.iter().filter(|all| !all.iter().any(|n| targets.iter().any(|t| hits(t, n)))) {
        disagreements.push(format!("{} is adapted but no target module", module[0]));
    }
}

/// PEFT takes a whole name or its end after a dot.
fn hits(target: &str, name: &str) -> bool {
    let target = plain(target);
    name == target || name.strip_suffix(target).is_some_and(|rest| rest.ends_with('.'))
}

fn module_of_table(tensor: &str) -> &str {
    tensor.strip_suffix(".weight").unwrap_or(tensor)
}

/// Compares PEFT's list of modules stored whole with the embedding tables, of which the file has all or none.
pub(super) fn check_saved(
    saved: &[String],
    tables: &[TensorSpec],
    has: bool,
    disagreements: &mut Vec<String>,
) {
    let names: Vec<&str> = tables.iter().map(|t| module_of_table(&t.name)).collect();
    // `emb` stands for the list of tables `emb.0`, `emb.1` and so on.
    let covers = |target: &str, name: &str| {
        let inside = |list: &str| name.strip_prefix(list).is_some_and(|rest| rest.starts_with('.'));
        hits(target, name) || inside(plain(target))
    };
    for target in saved.iter().filter(|t| !has || !names.iter().any(|n| covers(t, n))) {
        disagreements
            .push(format!("modules_to_save has {target:?}, which is no embedding table of the file"));
    }
    for name in names.iter().filter(|n| has && !saved.iter().any(|t| covers(t, n))) {
        disagreements.push(format!("{name} is in the file but not in modules_to_save"));
    }
}

fn stacked_name(site: &Site) -> String {
    let stem = site.module.rsplit_once('.').map(|(stem, _)| stem).unwrap_or_default();
    stem.strip_suffix("_projs").map_or_else(|| site.module.clone(), |s| format!("{s}_proj"))
}
