use std::path::Path;

use nn::{dtype_of, tensor_bytes, tensor_from_file};
use tch::{Kind, Tensor};
use weights::{
    CONFIG_FILE, LM_FILE, LmConfig, MIMI_FILE, ModelDir, NameReport, SafetensorsFile, SafetensorsWriter,
    TensorPlan, WeightsError, lm_inventory, sha256_file, temporary_beside,
};

use super::{Adapter, Site, sites};
use crate::PersonaplexError;

/// Random inputs per matrix when a merge is verified.
const CHECK_VECTORS: i64 = 64;
/// Largest relative error of a merged matrix in bf16, and in f32.
const LIMIT_BF16: f64 = 1e-2;
const LIMIT_F32: f64 = 1e-5;

/// What a merge did.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeReport {
    /// Linears changed (depformer steps counted singly).
    pub merged: usize,
    /// Largest relative error found while verifying.
    pub worst_error: f64,
    pub base_sha256: String,
    pub merged_sha256: String,
}

/// Writes a complete model directory with the adapter of `adapter_dir` merged into `base_dir`'s language model. Codec,
/// tokenizer and configuration are copied, the base is only read, `out_dir` must not exist and appears complete or not
/// at all. Refuses an adapter that names another base.
pub fn merge_model(
    base_dir: &Path,
    adapter_dir: &Path,
    out_dir: &Path,
) -> Result<MergeReport, PersonaplexError> {
    if out_dir.exists() {
        return Err(WeightsError::Exists { path: out_dir.to_path_buf() }.into());
    }
    let base = ModelDir::new(base_dir);
    let config = base.load_config()?;
    let adapter = Adapter::load(adapter_dir, &config.lm)?;
    let base_sha256 = sha256_file(&base.lm())?;
    let wanted = &adapter.meta().base_sha256;
    if !wanted.is_empty() && *wanted != base_sha256 {
        return Err(PersonaplexError::WrongBase { wanted: wanted.clone(), found: base_sha256 });
    }
    let temporary = temporary_beside(out_dir);
    std::fs::create_dir_all(&temporary).map_err(PersonaplexError::io("create", &temporary))?;
    let done = (|| {
        let merged = merge_file(&base.lm(), &config.lm, &adapter, &temporary.join(LM_FILE))?;
        for name in [MIMI_FILE, CONFIG_FILE, config.tokenizer.as_str()] {
            let from = base_dir.join(name);
            std::fs::copy(&from, temporary.join(name)).map_err(PersonaplexError::io("copy", &from))?;
        }
        let merged_sha256 = sha256_file(&temporary.join(LM_FILE))?;
        std::fs::rename(&temporary, out_dir).map_err(PersonaplexError::io("rename", &temporary))?;
        Ok(MergeReport { merged: merged.0, worst_error: merged.1, base_sha256, merged_sha256 })
    })();
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    done
}

/// Merges into one checkpoint file, tensor by tensor: `W + scaling * B A` in f32, stored in the base's type. Returns the
/// number of linears changed and the largest relative error.
pub fn merge_file(
    base: &Path,
    config: &LmConfig,
    adapter: &Adapter,
    out: &Path,
) -> Result<(usize, f64), PersonaplexError> {
    adapter.check(config)?;
    let file = SafetensorsFile::open(base)?;
    let report = NameReport::compare(&file, &lm_inventory(config));
    if !report.is_clean() {
        return Err(WeightsError::Names { path: base.to_path_buf(), report }.into());
    }
    let sites = sites(config, adapter.config().skip_depformer);
    let plan = file
        .tensors()
        .map(|(name, e)| TensorPlan { name: name.into(), dtype: e.dtype, shape: e.shape.clone() })
        .collect();
    let mut writer = SafetensorsWriter::create(out, plan, file.metadata())?;
    let (mut merged, mut worst) = (0, 0f64);
    for (name, _) in file.tensors() {
        let blocks = blocks_in(&sites, name);
        if blocks.is_empty() {
            writer.tensor(name, file.tensor(name)?.1)?;
            continue;
        }
        let tensor = tch::no_grad(|| -> Result<Tensor, PersonaplexError> {
            let mut tensor = tensor_from_file(&file, name)?;
            for (site, step, row) in &blocks {
                worst = worst.max(merge_block(&mut tensor, adapter, site, *step, *row)?);
            }
            Ok(tensor)
        })?;
        merged += blocks.len();
        writer.tensor(name, &tensor_bytes(&tensor)?)?;
    }
    writer.finish()?;
    Ok((merged, worst))
}

/// Sites whose weight lies in the tensor `name`, with step and first row.
fn blocks_in<'a>(sites: &'a [Site], name: &str) -> Vec<(&'a Site, i64, i64)> {
    let all = sites.iter().flat_map(|site| (0..site.steps).map(move |step| (site, step)));
    all.filter_map(|(site, step)| {
        let (tensor, row) = site.block(step);
        (tensor == name).then_some((site, step, row))
    })
    .collect()
}

/// Updates one block in place and returns the relative error of the stored result on random inputs.
fn merge_block(
    tensor: &mut Tensor,
    adapter: &Adapter,
    site: &Site,
    step: i64,
    row: i64,
) -> Result<f64, PersonaplexError> {
    let limit = if dtype_of(tensor)?.size() == 4 { LIMIT_F32 } else { LIMIT_BF16 };
    let pair = adapter.pair(site, step);
    let mut block = tensor.narrow(0, row, site.outputs);
    let before = block.to_kind(Kind::Float).copy();
    block.copy_(&(&before + pair.delta()));
    let x = Tensor::randn([site.inputs, CHECK_VECTORS], (Kind::Float, tensor.device()));
    let low = pair.a.to_kind(Kind::Float).matmul(&x);
    let wanted = before.matmul(&x) + pair.b.to_kind(Kind::Float).matmul(&low) * pair.scaling;
    let found = block.to_kind(Kind::Float).matmul(&x);
    let error = ((found - &wanted).norm() / wanted.norm().clamp_min(1e-12)).double_value(&[]);
    if error.is_nan() || error > limit {
        return Err(PersonaplexError::MergeMismatch { name: site.module_of(step), error, limit });
    }
    Ok(error)
}
