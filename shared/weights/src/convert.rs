use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde::Serialize;

use crate::init::{whole_dir, write_config};
use crate::inspect::{config_beside, inventory_for};
use crate::{
    Adaptation, CONFIG_FILE, CanonicalReader, CheckpointInfo, CheckpointSource, Dtype, LM_FILE, MIMI_FILE,
    ModelConfig, ModelDir, TensorPlan, TensorSpec, WeightsError, WriteOptions, check_tokenizer_of,
    checkpoint_sha256, index_path, inspect_checkpoint, moshi, write_checkpoint,
};

/// Key of an output's metadata that says how it was made from a plain Moshi model.
const MOSHI_KEY: &str = "init_from_moshi";
/// Bytes converted or copied at once.
const CHUNK: usize = 8 << 20;

/// What [`convert`] shall make.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Sizes of the result; those of the input's `config.json`, else of the 7B, when `None`.
    pub config: Option<ModelConfig>,
    /// F32 or BF16 for the language model; as it is when `None`. A codec in a model directory keeps its type.
    pub dtype: Option<Dtype>,
    /// The input is a plain Moshi model (8 depformer steps) and shall become one with 16.
    pub init_from_moshi: bool,
    pub write: WriteOptions,
}

/// What [`convert`] did.
#[derive(Debug, Clone, Serialize)]
pub struct ConvertReport {
    /// Spelling of the input.
    pub from: String,
    /// Set when the input was a plain Moshi model.
    pub adaptation: Option<Adaptation>,
    /// The language model written, or the codec when the input was one.
    pub written: CheckpointInfo,
}

/// Writes a checkpoint again: published names whatever the input's spelling, one file or shards, another type. The input
/// is a file, an index or a directory of weights, and then `output` is a file; or a model directory (with `config.json`),
/// and then `output` is a model directory. `output` must not exist. Strict as loading is: nothing missing becomes zeros but
/// what [`ConvertOptions::init_from_moshi`] asks for, and the report says so.
pub fn convert(input: &Path, output: &Path, options: &ConvertOptions) -> Result<ConvertReport, WeightsError> {
    if let Some(dtype) = options.dtype.filter(|d| !d.is_weight()) {
        let detail = format!("weights cannot be written as {}", dtype.name());
        return Err(WeightsError::InvalidConfig { detail });
    }
    let mut config = config_beside(input, options.config.as_ref())?;
    if options.init_from_moshi {
        // The target; a configuration beside a Moshi model says 8 and has its name.
        if config.lm.dep_q != config.lm.n_q {
            config.lm.dep_q = config.lm.n_q;
            config.name.push_str("-as-personaplex");
        }
    }
    config.validate()?;
    if input.is_dir() && input.join(CONFIG_FILE).exists() {
        return convert_dir(input, output, &config, options);
    }
    for path in [output.to_path_buf(), index_path(output)] {
        if path.exists() {
            return Err(WeightsError::Exists { path });
        }
    }
    convert_file(input, output, &config, options)
}

fn convert_dir(
    input: &Path,
    output: &Path,
    config: &ModelConfig,
    options: &ConvertOptions,
) -> Result<ConvertReport, WeightsError> {
    let from = ModelDir::new(input);
    check_tokenizer_of(&from.tokenizer_of(config), config)?;
    whole_dir(output, |temporary| {
        let report = convert_file(&from.lm(), &temporary.join(LM_FILE), config, options)?;
        let as_is = ConvertOptions {
            dtype: None,
            init_from_moshi: false,
            write: WriteOptions { shard_size: None, ..options.write },
            ..options.clone()
        };
        convert_file(&from.mimi(), &temporary.join(MIMI_FILE), config, &as_is)?;
        write_config(temporary, config)?;
        let tokenizer = from.tokenizer_of(config);
        std::fs::copy(&tokenizer, temporary.join(&config.tokenizer))
            .map_err(WeightsError::io("copy", &tokenizer))?;
        Ok(report)
    })
}

fn convert_file(
    input: &Path,
    output: &Path,
    config: &ModelConfig,
    options: &ConvertOptions,
) -> Result<ConvertReport, WeightsError> {
    let source = CheckpointSource::open(input)?;
    let mut metadata = source.metadata();
    let wanted = inventory_for(&source, config);
    let (reader, adaptation) = if options.init_from_moshi {
        let (reader, done) = from_moshi(source, &wanted)?;
        metadata.insert(MOSHI_KEY.into(), done.to_string());
        metadata.insert("init_from_moshi_sha256".into(), checkpoint_sha256(input)?);
        (reader, Some(done))
    } else {
        (CanonicalReader::new(source, &wanted)?, None)
    };
    let from = reader.spelling().to_string();
    write_canonical(&reader, output, &metadata, options)?;
    Ok(ConvertReport { from, adaptation, written: inspect_checkpoint(output)? })
}

fn from_moshi(
    source: CheckpointSource,
    wanted: &[TensorSpec],
) -> Result<(CanonicalReader, Adaptation), WeightsError> {
    let Some(eight) = moshi::eight_steps(wanted) else {
        let detail = "a codec or a model without 16 depformer steps cannot be made from a plain Moshi model";
        return Err(WeightsError::InvalidConfig { detail: detail.into() });
    };
    let reader = CanonicalReader::new(source, &eight).map_err(|error| match error {
        WeightsError::Names { path, report } => WeightsError::NotMoshi { path, report },
        error => error,
    })?;
    reader.adapted(wanted)
}

fn write_canonical(
    reader: &CanonicalReader,
    output: &Path,
    metadata: &BTreeMap<String, String>,
    options: &ConvertOptions,
) -> Result<Vec<PathBuf>, WeightsError> {
    let mut plan = Vec::new();
    for (name, shape) in reader.tensors() {
        let dtype = options.dtype.unwrap_or(reader.entry(name)?.1);
        plan.push(TensorPlan { name: name.into(), dtype, shape: shape.to_vec() });
    }
    write_checkpoint(output, &plan, metadata, options.write, |tensor, sink| {
        for part in reader.parts(&tensor.name)? {
            for chunk in part.bytes.chunks(CHUNK) {
                sink(&cast(chunk, part.dtype, tensor.dtype))?;
            }
        }
        reader.release(&tensor.name);
        Ok(())
    })
}

/// The same numbers in another weight type, rounded to nearest even where it is narrower. Other types never get here: the
/// report refuses them.
fn cast(bytes: &[u8], from: Dtype, to: Dtype) -> Cow<'_, [u8]> {
    if from == to {
        return Cow::Borrowed(bytes);
    }
    let values = bytes.chunks_exact(from.size()).map(|b| match (from, b) {
        (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        (Dtype::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("weights are F32, F16 or BF16"),
    });
    let mut out = Vec::with_capacity(bytes.len() / from.size() * to.size());
    for value in values {
        match to {
            Dtype::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
            Dtype::BF16 => out.extend(bf16::from_f32(value).to_le_bytes()),
            _ => out.extend(value.to_le_bytes()),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_cast_to_the_nearest_value() {
        let bytes: Vec<u8> = [1.0f32, -2.5, 1.003_906_2].iter().flat_map(|v| v.to_le_bytes()).collect();
        let half = cast(&bytes, Dtype::F32, Dtype::BF16);
        assert_eq!(half.len(), 6);
        let back = cast(&half, Dtype::BF16, Dtype::F32);
        let values: Vec<f32> =
            back.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        // 1 + 2^-8 lies half way; the even neighbour is 1.
        assert_eq!(values, [1.0, -2.5, 1.0]);
        assert!(matches!(cast(&bytes, Dtype::F32, Dtype::F32), Cow::Borrowed(_)));
    }
}
