use std::collections::BTreeMap;
use std::path::Path;

use half::bf16;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use crate::{
    CONFIG_FILE, Dtype, LM_FILE, MIMI_FILE, ModelConfig, ModelInfo, SafetensorsWriter, TensorPlan,
    TensorSpec, WeightsError, inspect, lm_inventory, mimi_inventory, preset_tokenizer, temporary_beside,
};

/// Writes a model directory with random weights for a preset that carries a tokenizer. See [`init_model_with`].
pub fn init_model(dir: &Path, preset: &str, seed: u64) -> Result<ModelInfo, WeightsError> {
    init_model_with(dir, &ModelConfig::preset(preset)?, preset_tokenizer(preset)?, seed)
}

/// Writes a model directory with random weights: the same configuration and seed give the same bytes. Every tensor has
/// its own generator, seeded by its name, so shapes of other tensors do not matter. The directory appears complete or
/// not at all; it must not exist.
pub fn init_model_with(
    dir: &Path,
    config: &ModelConfig,
    tokenizer: &[u8],
    seed: u64,
) -> Result<ModelInfo, WeightsError> {
    config.validate()?;
    if dir.exists() {
        return Err(WeightsError::Exists { path: dir.to_path_buf() });
    }
    let temporary = temporary_beside(dir);
    std::fs::create_dir_all(&temporary).map_err(WeightsError::io("create", &temporary))?;
    let written = write_files(&temporary, config, tokenizer, seed)
        .and_then(|()| std::fs::rename(&temporary, dir).map_err(WeightsError::io("rename", &temporary)));
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    written?;
    inspect(dir)
}

fn write_files(dir: &Path, config: &ModelConfig, tokenizer: &[u8], seed: u64) -> Result<(), WeightsError> {
    write_random(&dir.join(LM_FILE), &lm_inventory(&config.lm), Dtype::BF16, seed)?;
    write_random(&dir.join(MIMI_FILE), &mimi_inventory(&config.mimi), Dtype::F32, seed)?;
    let text = serde_json::to_string_pretty(config).expect("a configuration is plain data") + "\n";
    for (name, bytes) in [(CONFIG_FILE, text.as_bytes()), (config.tokenizer.as_str(), tokenizer)] {
        let path = dir.join(name);
        std::fs::write(&path, bytes).map_err(WeightsError::io("write", &path))?;
    }
    Ok(())
}

fn write_random(path: &Path, specs: &[TensorSpec], dtype: Dtype, seed: u64) -> Result<(), WeightsError> {
    let mut specs = specs.to_vec();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let plan =
        specs.iter().map(|s| TensorPlan { name: s.name.clone(), dtype, shape: s.shape.clone() }).collect();
    let metadata = BTreeMap::from([("seed".to_string(), seed.to_string())]);
    let mut writer = SafetensorsWriter::create(path, plan, &metadata)?;
    for spec in &specs {
        let values = random_values(spec, seed);
        let bytes: Vec<u8> = match dtype {
            Dtype::BF16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        writer.tensor(&spec.name, &bytes)?;
    }
    writer.finish()
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

fn random_values(spec: &TensorSpec, seed: u64) -> Vec<f32> {
    let mut key = Sha256::new();
    key.update(b"random weights");
    key.update(seed.to_le_bytes());
    key.update(spec.name.as_bytes());
    let mut rng = ChaCha8Rng::from_seed(key.finalize().into());
    let count = spec.shape.iter().product::<i64>() as usize;
    match draw_for(spec) {
        Draw::Constant(value) => vec![value; count],
        Draw::Uniform(bound) => (0..count).map(|_| rng.random_range(-bound..bound)).collect(),
        Draw::Normal(std) => (0..count).map(|_| std * normal(&mut rng)).collect(),
    }
}

/// A standard normal by the sum of twelve uniforms: the same on every machine, since it needs no library function.
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0
}
