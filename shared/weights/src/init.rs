use std::collections::BTreeMap;
use std::path::Path;

use half::bf16;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use crate::{
    CONFIG_FILE, Dtype, LM_FILE, MIMI_FILE, ModelConfig, ModelInfo, TensorPlan, TensorSpec, WeightsError,
    WriteOptions, inspect, lm_inventory, mimi_inventory, preset_tokenizer, temporary_beside,
    write_checkpoint,
};

/// Elements drawn before they are written: threads times this is the memory needed.
const CHUNK: usize = 1 << 20;

/// How [`init_model_as`] writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct InitOptions {
    /// Seed of every tensor.
    pub seed: u64,
    /// Shards of the language model and threads; neither changes a value.
    pub write: WriteOptions,
}

/// Writes a model directory with random weights for a preset that carries a tokenizer. See [`init_model_as`].
pub fn init_model(dir: &Path, preset: &str, seed: u64) -> Result<ModelInfo, WeightsError> {
    init_model_with(dir, &ModelConfig::preset(preset)?, preset_tokenizer(preset)?, seed)
}

/// [`init_model_as`] with the language model in one file.
pub fn init_model_with(
    dir: &Path,
    config: &ModelConfig,
    tokenizer: &[u8],
    seed: u64,
) -> Result<ModelInfo, WeightsError> {
    init_model_as(dir, config, tokenizer, InitOptions { seed, ..InitOptions::default() })
}

/// Writes a model directory with random weights: the same configuration and seed give the same values. Every tensor has
/// its own generator, seeded by its name, so shapes of other tensors, shards and threads do not matter. The directory
/// appears complete or not at all; it must not exist.
pub fn init_model_as(
    dir: &Path,
    config: &ModelConfig,
    tokenizer: &[u8],
    options: InitOptions,
) -> Result<ModelInfo, WeightsError> {
    config.validate()?;
    whole_dir(dir, |temporary| {
        write_random(&temporary.join(LM_FILE), &lm_inventory(&config.lm), Dtype::BF16, options)?;
        let whole = WriteOptions { shard_size: None, ..options.write };
        let options = InitOptions { write: whole, ..options };
        write_random(&temporary.join(MIMI_FILE), &mimi_inventory(&config.mimi), Dtype::F32, options)?;
        write_config(temporary, config)?;
        let path = temporary.join(&config.tokenizer);
        std::fs::write(&path, tokenizer).map_err(WeightsError::io("write", &path))
    })?;
    inspect(dir)
}

/// Makes a directory that appears complete or not at all.
pub(crate) fn whole_dir<T, E: From<WeightsError>>(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    if dir.exists() {
        return Err(WeightsError::Exists { path: dir.to_path_buf() }.into());
    }
    let temporary = temporary_beside(dir);
    std::fs::create_dir_all(&temporary).map_err(WeightsError::io("create", &temporary))?;
    let filled = fill(&temporary).and_then(|value| {
        std::fs::rename(&temporary, dir).map_err(WeightsError::io("rename", &temporary))?;
        Ok(value)
    });
    if filled.is_err() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    filled
}

pub(crate) fn write_config(dir: &Path, config: &ModelConfig) -> Result<(), WeightsError> {
    let text = serde_json::to_string_pretty(config).expect("a configuration is plain data") + "\n";
    let path = dir.join(CONFIG_FILE);
    std::fs::write(&path, text).map_err(WeightsError::io("write", &path))
}

fn write_random(
    path: &Path,
    specs: &[TensorSpec],
    dtype: Dtype,
    options: InitOptions,
) -> Result<(), WeightsError> {
    let specs: BTreeMap<&str, &TensorSpec> = specs.iter().map(|s| (s.name.as_str(), s)).collect();
    let plan: Vec<TensorPlan> =
        specs.values().map(|s| TensorPlan { name: s.name.clone(), dtype, shape: s.shape.clone() }).collect();
    let metadata = BTreeMap::from([("seed".to_string(), options.seed.to_string())]);
    write_checkpoint(path, &plan, &metadata, options.write, |tensor, sink| {
        let mut bytes = Vec::with_capacity(CHUNK * dtype.size());
        random_values(specs[tensor.name.as_str()], options.seed, |values| {
            bytes.clear();
            match dtype {
                Dtype::BF16 => values.iter().for_each(|v| bytes.extend(bf16::from_f32(*v).to_le_bytes())),
                _ => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            }
            sink(&bytes)
        })
    })?;
    Ok(())
}

enum Draw {
    Constant(f32),
    Uniform(f32),
    Normal(f32),
}

/// Scales by role, so that signals neither die nor grow on their way through the random graph.
fn draw_for(spec: &TensorSpec) -> Draw {
    let name = spec.name.as_str();
    let fan_in = spec.shape.iter().skip(1).product::<i64>().max(1) as f32;
    let ones = [".alpha", "._initialized", ".cluster_usage"].iter().any(|end| name.ends_with(end));
    if ones || (name.contains(".norm") && name.ends_with(".weight")) {
        Draw::Constant(1.0)
    } else if name.ends_with(".bias") {
        Draw::Constant(0.0)
    } else if name.ends_with(".scale") {
        // The published codec starts its layer scales at 0.01; larger ones make the transformers audible in tests.
        Draw::Constant(0.1)
    } else if name.ends_with(".embedding_sum") {
        // Centroids as wide as the projected latent, so that codes vary with the sound.
        Draw::Normal(0.25)
    } else if name.contains("emb.") || name.starts_with("emb") {
        Draw::Normal(0.3)
    } else if name.starts_with("decoder.model.") && spec.shape.len() == 3 && spec.shape[0] == 1 {
        // The convolution that gives the wave: about -20 dBFS, so that noise does not clip.
        Draw::Uniform(0.1 * (3.0 / fan_in).sqrt())
    } else if name.contains(".convtr.") && spec.shape[1] > 1 {
        // Each output sample of a transposed convolution with k = 2 * stride sums 2 * in terms.
        Draw::Uniform((3.0 / (2.0 * spec.shape[0] as f32)).sqrt())
    } else if name.contains("upsample") {
        Draw::Uniform(1.0)
    } else {
        Draw::Uniform((3.0 / fan_in).sqrt())
    }
}

/// Gives the values of one tensor in chunks.
fn random_values(
    spec: &TensorSpec,
    seed: u64,
    mut take: impl FnMut(&[f32]) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    let mut key = Sha256::new();
    key.update(b"random weights");
    key.update(seed.to_le_bytes());
    key.update(spec.name.as_bytes());
    let mut rng = ChaCha8Rng::from_seed(key.finalize().into());
    let draw = draw_for(spec);
    let mut left = spec.shape.iter().product::<i64>() as usize;
    let mut values = vec![0f32; left.min(CHUNK)];
    while left > 0 {
        let chunk = &mut values[..left.min(CHUNK)];
        match draw {
            Draw::Constant(value) => chunk.fill(value),
            Draw::Uniform(bound) => chunk.fill_with(|| rng.random_range(-bound..bound)),
            Draw::Normal(std) => chunk.fill_with(|| std * normal(&mut rng)),
        }
        take(chunk)?;
        left -= chunk.len();
    }
    Ok(())
}

/// A standard normal by the sum of twelve uniforms: the same on every machine, since it needs no library function.
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0
}
