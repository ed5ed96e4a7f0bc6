//! Checkpoints made for tests, spelled by rules written down here a second time.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weights::{Dtype, LmConfig, ModelConfig, SafetensorsFile, SafetensorsWriter, TensorPlan, TensorSpec};

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Tensors with everything a file says about them.
pub type Tensors = BTreeMap<String, (Dtype, Vec<i64>, Vec<u8>)>;

#[expect(clippy::disallowed_methods, reason = "where golden data lies is the choice of who runs the tests")]
pub fn golden(name: &str) -> PathBuf {
    let root = std::env::var("PPX_GOLDEN_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
    Path::new(&root).join(name)
}

/// The tiny preset with another number of depformer steps and layers.
pub fn config(steps: i64, layers: i64) -> Result<ModelConfig, Box<dyn std::error::Error>> {
    let mut config = ModelConfig::preset("tiny")?;
    config.lm.dep_q = steps;
    config.lm.depformer_num_layers = layers;
    config.validate()?;
    Ok(config)
}

/// Different bytes in every tensor; norms too.
pub fn filled(specs: &[TensorSpec]) -> Tensors {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Small positive numbers whichever half of a BF16 this byte becomes.
        (state >> 32) as u8 & 0x3f
    };
    let tensor = |spec: &TensorSpec, byte: &mut dyn FnMut() -> u8| {
        let count = spec.shape.iter().product::<i64>() as usize * 2;
        (Dtype::BF16, spec.shape.clone(), (0..count).map(|_| byte()).collect())
    };
    specs.iter().map(|s| (s.name.clone(), tensor(s, &mut byte))).collect()
}

pub fn write(path: &Path, tensors: &Tensors) -> Outcome {
    let plan = tensors
        .iter()
        .map(|(name, (dtype, shape, _))| TensorPlan {
            name: name.clone(),
            dtype: *dtype,
            shape: shape.clone(),
        })
        .collect();
    let mut writer = SafetensorsWriter::create(path, plan, &BTreeMap::new())?;
    for (name, (_, _, bytes)) in tensors {
        writer.tensor(name, bytes)?;
    }
    Ok(writer.finish()?)
}

pub fn read(path: &Path) -> Result<Tensors, Box<dyn std::error::Error>> {
    let file = SafetensorsFile::open(path)?;
    let mut tensors = Tensors::new();
    for (name, entry) in file.tensors() {
        let bytes = file.tensor(name)?.1.to_vec();
        tensors.insert(name.into(), (entry.dtype, entry.shape.clone(), bytes));
    }
    Ok(tensors)
}

/// A file with any header text.
pub fn raw(path: &Path, header: &str, data: &[u8]) -> Outcome {
    let length = (header.len() as u64).to_le_bytes();
    Ok(std::fs::write(path, [&length[..], header.as_bytes(), data].concat())?)
}

fn blocks((dtype, shape, bytes): &(Dtype, Vec<i64>, Vec<u8>), n: usize) -> Vec<(Dtype, Vec<i64>, Vec<u8>)> {
    let mut shape = shape.clone();
    shape[0] /= n as i64;
    bytes.chunks_exact(bytes.len() / n).map(|b| (*dtype, shape.clone(), b.to_vec())).collect()
}

/// Current Moshi: one attention projection for each step, index 0 in the backbone and in codecs.
pub fn per_step(published: &Tensors, steps: usize) -> Tensors {
    let mut out = Tensors::new();
    for (name, tensor) in published {
        let n = if name.starts_with("depformer.") { steps } else { 1 };
        let renamed = name
            .strip_suffix("in_proj_weight")
            .map(|p| (p, "in_projs"))
            .or_else(|| name.strip_suffix("self_attn.out_proj.weight").map(|p| (p, "self_attn.out_projs")));
        match renamed {
            Some((prefix, list)) => {
                for (s, block) in blocks(tensor, n).into_iter().enumerate() {
                    out.insert(format!("{prefix}{list}.{s}.weight"), block);
                }
            }
            None => drop(out.insert(name.clone(), tensor.clone())),
        }
    }
    out
}

/// Older exports: a module where the published files have a bare parameter.
pub fn module(published: &Tensors) -> Tensors {
    published.iter().map(|(n, t)| (n.replace("in_proj_weight", "in_proj.weight"), t.clone())).collect()
}

/// The layout made for candle: everything of one depformer step together.
pub fn by_step(published: &Tensors, lm: &LmConfig) -> Result<Tensors, Box<dyn std::error::Error>> {
    let steps = lm.dep_q as usize;
    let mut out: Tensors = published
        .iter()
        .filter(|(n, _)| !n.starts_with("depformer") && !n.starts_with("linears"))
        .map(own)
        .collect();
    let get = |name: String| published.get(&name).cloned().ok_or(name);
    for s in 0..steps {
        let p = format!("depformer.{s}");
        out.insert(format!("{p}.linear_in.weight"), get(format!("depformer_in.{s}.weight"))?);
        out.insert(format!("{p}.linear_out.weight"), get(format!("linears.{s}.weight"))?);
        let emb = if s == 0 {
            "depformer_text_emb.weight".into()
        } else {
            format!("depformer_emb.{}.weight", s - 1)
        };
        out.insert(format!("{p}.emb.weight"), get(emb)?);
        for l in 0..lm.depformer_num_layers {
            let (from, to) = (format!("depformer.layers.{l}"), format!("{p}.transformer.layers.{l}"));
            for norm in ["norm1.alpha", "norm2.alpha"] {
                out.insert(format!("{to}.{norm}"), get(format!("{from}.{norm}"))?);
            }
            for projection in ["self_attn.in_proj_weight", "self_attn.out_proj.weight"] {
                let all = get(format!("{from}.{projection}"))?;
                out.insert(format!("{to}.{projection}"), blocks(&all, steps)[s].clone());
            }
            for half in ["linear_in.weight", "linear_out.weight"] {
                out.insert(format!("{to}.gating.{half}"), get(format!("{from}.gating.{s}.{half}"))?);
            }
        }
    }
    Ok(out)
}

fn own((name, tensor): (&String, &(Dtype, Vec<i64>, Vec<u8>))) -> (String, (Dtype, Vec<i64>, Vec<u8>)) {
    (name.clone(), tensor.clone())
}
