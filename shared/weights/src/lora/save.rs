use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::config::{KYUTAI_CONFIG_FILE, PEFT_CONFIG_FILE, kyutai_json, peft_json};
use super::file::tensors_name;
use super::names::PEFT_PREFIX;
use super::{AdapterFile, AdapterMeta, FORMAT_VERSION, Layout, LoraConfig, LoraError, adapter_inventory};
use crate::{
    Dtype, LmConfig, ModelDir, SafetensorsWriter, TensorPlan, TensorSpec, WeightsError, temporary_beside,
};

/// Writes an adapter directory, which is created when missing: the tensors, then the configuration, each file complete
/// or not at all. Linears that a [`Layout::Kyutai`] adapter leaves out are written as zeros. `tensor` gives the
/// little-endian bytes of each tensor of [`adapter_inventory`] in `dtype`; trained embedding tables are among them.
pub fn save_adapter<'t, E: From<LoraError> + From<WeightsError>>(
    dir: &Path,
    layout: Layout,
    lm: &LmConfig,
    (config, meta, dtype): (&LoraConfig, &AdapterMeta, Dtype),
    mut tensor: impl FnMut(&TensorSpec) -> Result<Cow<'t, [u8]>, E>,
) -> Result<(), E> {
    config.validate()?;
    std::fs::create_dir_all(dir).map_err(WeightsError::io("create", dir))?;
    let prefix = if layout == Layout::Peft { PEFT_PREFIX } else { "" };
    // The reference server puts adapters on every linear and cannot start when the file leaves some of them out.
    let filled = layout == Layout::Kyutai && config.skip_depformer;
    let own = adapter_inventory(lm, config);
    let all = LoraConfig { skip_depformer: config.skip_depformer && !filled, ..config.clone() };
    let specs = adapter_inventory(lm, &all);
    let plan: Vec<TensorPlan> = specs
        .iter()
        .map(|s| TensorPlan { name: format!("{prefix}{}", s.name), dtype, shape: s.shape.clone() })
        .collect();
    let names: Vec<String> = plan.iter().map(|p| p.name.clone()).collect();
    let metadata = header(config, meta);
    let mut writer = SafetensorsWriter::create(&dir.join(tensors_name(layout)), plan, &metadata)?;
    for (spec, name) in specs.iter().zip(&names) {
        if own.binary_search_by(|s| s.name.cmp(&spec.name)).is_ok() {
            writer.tensor(name, &tensor(spec)?)?;
        } else {
            let bytes = spec.shape.iter().product::<i64>() as usize * dtype.size();
            writer.tensor(name, &vec![0; bytes])?;
        }
    }
    writer.finish()?;
    let (file, json) = match layout {
        Layout::Kyutai => (KYUTAI_CONFIG_FILE, kyutai_json(lm, config)),
        Layout::Peft => (PEFT_CONFIG_FILE, peft_json(lm, config)),
    };
    let path = dir.join(file);
    let temporary = temporary_beside(&path);
    std::fs::write(&temporary, format!("{json:#}\n")).map_err(WeightsError::io("write", &temporary))?;
    std::fs::rename(&temporary, &path).map_err(WeightsError::io("rename", &temporary))?;
    Ok(())
}

fn header(config: &LoraConfig, meta: &AdapterMeta) -> BTreeMap<String, String> {
    let own = [
        // PEFT refuses files that do not name the framework their tensors are for.
        ("format", "pt".to_string()),
        ("format_version", FORMAT_VERSION.to_string()),
        ("rank", config.rank.to_string()),
        ("scaling", config.scaling.to_string()),
        ("skip_depformer", config.skip_depformer.to_string()),
        ("embeddings", config.embeddings.to_string()),
    ];
    own.into_iter().chain(meta.entries()).map(|(k, v)| (k.to_string(), v)).collect()
}

/// Writes the adapter of `adapter_dir`, in whichever layout, into `out_dir` in the layout `layout`. The model of
/// `model_dir` gives the sizes. `out_dir` must not exist.
pub fn export_adapter(
    model_dir: &Path,
    adapter_dir: &Path,
    out_dir: &Path,
    layout: Layout,
) -> Result<(), LoraError> {
    if out_dir.exists() {
        return Err(WeightsError::Exists { path: out_dir.to_path_buf() }.into());
    }
    let lm = ModelDir::new(model_dir).load_config()?.lm;
    let adapter = AdapterFile::open(adapter_dir, &lm)?;
    let what = (adapter.config(), adapter.meta(), adapter.dtype());
    save_adapter(out_dir, layout, &lm, what, |spec| {
        Ok::<_, LoraError>(Cow::Borrowed(adapter.tensor(&spec.name)?))
    })
}
