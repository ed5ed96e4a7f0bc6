//! Golden data: `PPX_GOLDEN_DIR`, by default `tests/golden` of the workspace. Sizes come from the data.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use nn::{Checkpoint, tensor_from_file};
use personaplex::{Lm, Mimi};
use serde_json::Value;
use tch::{Device, Kind, Tensor};
use weights::{LmConfig, MimiConfig, SafetensorsFile};

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[expect(clippy::disallowed_methods, reason = "where golden data lies is the choice of who runs the tests")]
pub fn golden(name: &str) -> PathBuf {
    let root = std::env::var("PPX_GOLDEN_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
    Path::new(&root).join(name)
}

pub fn json(name: &str) -> Result<Value, Box<dyn std::error::Error>> {
    Ok(serde_json::from_slice(&std::fs::read(golden(name))?)?)
}

/// A golden safetensors file.
pub struct Data(SafetensorsFile);

impl Data {
    pub fn open(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        // Test processes run side by side; more threads in each would only wait for each other.
        nn::device::set_threads(1);
        Ok(Self(SafetensorsFile::open(&golden(name))?))
    }

    /// A tensor in the file's own kind.
    pub fn raw(&self, name: &str) -> Tensor {
        tensor_from_file(&self.0, name).expect("named in the golden set's README")
    }

    /// As [`Data::raw`] for tensors that only some files of a set have.
    pub fn maybe(&self, name: &str) -> Option<Tensor> {
        tensor_from_file(&self.0, name).ok()
    }

    pub fn f32(&self, name: &str) -> Tensor {
        self.raw(name).to_kind(Kind::Float)
    }

    pub fn i64(&self, name: &str) -> Tensor {
        self.raw(name).to_kind(Kind::Int64)
    }

    /// Integers of a tensor, flat.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        Vec::try_from(self.i64(name).flatten(0, -1)).expect("flat integers")
    }
}

/// Configuration of the tiny language model of a golden set.
pub fn lm_config(set: &str, file: &str) -> Result<LmConfig, Box<dyn std::error::Error>> {
    Ok(serde_json::from_value(json(&format!("{set}/{file}"))?["config"].clone())?)
}

pub fn lm_tiny(kind: Kind) -> Result<Lm, Box<dyn std::error::Error>> {
    nn::device::set_threads(1);
    let config = lm_config("personaplex/lm_tiny", "config.json")?;
    Ok(Lm::from_file(&golden("personaplex/lm_tiny/weights.safetensors"), &config, Device::Cpu, kind)?)
}

/// The codec of the golden set; its configuration spells out fixed values that ours leaves implied.
pub fn mimi_tiny() -> Result<Mimi, Box<dyn std::error::Error>> {
    nn::device::set_threads(1);
    let config = mimi_config()?;
    Ok(Mimi::from_file(&golden("personaplex/mimi_tiny/weights.safetensors"), &config, Device::Cpu)?)
}

pub fn mimi_config() -> Result<MimiConfig, Box<dyn std::error::Error>> {
    let all = json("personaplex/mimi_tiny/config.json")?;
    let pick = |from: &Value, keys: &[&str]| -> Value {
        keys.iter().map(|k| ((*k).to_string(), from[*k].clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let mut config = pick(&all, &["sample_rate", "frame_rate", "active_codebooks"]);
    let seanet = [
        "dimension",
        "n_filters",
        "ratios",
        "compress",
        "kernel_size",
        "residual_kernel_size",
        "last_kernel_size",
    ];
    config["seanet"] = pick(&all["seanet"], &seanet);
    let transformer = ["d_model", "num_heads", "num_layers", "context", "max_period", "dim_feedforward"];
    config["transformer"] = pick(&all["transformer"], &transformer);
    config["quantizer"] = pick(&all["quantizer"], &["dimension", "n_q", "bins"]);
    Ok(serde_json::from_value(config)?)
}

/// Fails naming the tap when any element differs by more than `tolerance`.
pub fn assert_close(tap: &str, found: &Tensor, wanted: &Tensor, tolerance: f64) {
    assert_eq!(found.size(), wanted.size(), "{tap}: shapes");
    let difference =
        (found.to_kind(Kind::Double) - wanted.to_kind(Kind::Double)).abs().max().double_value(&[]);
    assert!(difference <= tolerance, "{tap}: largest difference {difference:e} is above {tolerance:e}");
}

pub fn assert_equal(tap: &str, found: &Tensor, wanted: &Tensor) {
    assert_close(tap, found, wanted, 0.0);
}

/// Any golden checkpoint, f32.
pub fn open_any(name: &str) -> Result<Checkpoint, Box<dyn std::error::Error>> {
    Ok(Checkpoint::open_any(&golden(name), Device::Cpu, Kind::Float)?)
}

/// Rows of an `[N, .., width]` integer tensor as arrays.
pub fn arrays<const W: usize>(values: &[i64]) -> Vec<[i32; W]> {
    values.chunks_exact(W).map(|c| std::array::from_fn(|i| c[i] as i32)).collect()
}
