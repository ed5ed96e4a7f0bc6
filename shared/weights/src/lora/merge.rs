use std::borrow::Cow;
use std::num::NonZero;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::product::{Matrix, add_product, narrow, widen};
use super::whole::beside_base;
use super::{AdapterFile, Half, LoraError, Site, embedding_tables, sites};
use crate::{
    CanonicalReader, Dtype, LmConfig, ModelDir, SafetensorsWriter, TensorPlan, WeightsError,
    checkpoint_sha256, lm_inventory, sha256_file,
};

/// Random inputs per matrix when a merge is verified.
const CHECK_VECTORS: usize = 64;
/// Largest relative error of a merged matrix in 16 bits, and in 32.
const LIMIT_16_BIT: f64 = 1e-2;
const LIMIT_F32: f64 = 1e-5;
/// Rows worked on at a time by one thread; bounds the f32 copies of a matrix.
const STRIP: usize = 128;

/// What a merge did.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeReport {
    /// Linears changed (depformer steps counted singly).
    pub merged: usize,
    /// Embedding tables taken over from the adapter.
    pub embeddings: usize,
    /// Largest `|W'x - (Wx + scaling B A x)| / |Wx + scaling B A x|` (norms over 64 random x) of any linear.
    pub worst_error: f64,
    /// Share of the changed linears' weights whose stored value is the base's own: the update was lost in rounding.
    pub unchanged: f64,
    /// Whether the adapter named this base; files of other programs name none.
    pub base_named: bool,
    pub base_sha256: String,
    pub merged_sha256: String,
}

/// Writes a complete model directory with the adapter of `adapter_dir` (either layout) merged into `base_dir`'s language
/// model. Codec, tokenizer and configuration are copied, the base is only read, `out_dir` must not exist and appears
/// complete or not at all. Refuses an adapter that names another base or does not fit this one.
pub fn merge_model(base_dir: &Path, adapter_dir: &Path, out_dir: &Path) -> Result<MergeReport, LoraError> {
    if out_dir.exists() {
        return Err(WeightsError::Exists { path: out_dir.to_path_buf() }.into());
    }
    let base = ModelDir::new(base_dir);
    let config = base.load_config()?;
    let adapter = AdapterFile::open(adapter_dir, &config.lm)?;
    beside_base(base_dir, &config, out_dir, |out| merge_file(&base.lm(), &config.lm, &adapter, out))
}

/// Merges into one checkpoint file, tensor by tensor: `W + scaling * B A` in f32, rounded once to the base's type. The
/// base may be sharded or in another spelling; the result is one file in the published names. At most one tensor is in
/// memory beside the mapped files. Every changed linear is verified on random inputs.
pub fn merge_file(
    base: &Path,
    config: &LmConfig,
    adapter: &AdapterFile,
    out: &Path,
) -> Result<MergeReport, LoraError> {
    let reader = CanonicalReader::open(base, &lm_inventory(config))?;
    let base_sha256 = checkpoint_sha256(base)?;
    let base_named = adapter.check_base(&base_sha256)?;
    let sites = sites(config, adapter.config().skip_depformer);
    let names: Vec<String> = reader.tensors().map(|(name, _)| name.to_string()).collect();
    let mut plan = Vec::new();
    for name in &names {
        let (shape, dtype) = reader.entry(name)?;
        plan.push(TensorPlan { name: name.clone(), dtype, shape: shape.to_vec() });
    }
    let mut writer = SafetensorsWriter::create(out, plan, &reader.source().metadata())?;
    let mut totals = Totals::default();
    let tables = if adapter.config().embeddings { embedding_tables(config) } else { Vec::new() };
    for name in &names {
        if tables.iter().any(|t| t.name == *name) {
            writer.tensor(name, &table(adapter, name, reader.entry(name)?.1)?)?;
            continue;
        }
        let bytes = joined(&reader, name)?;
        let blocks = blocks_in(&sites, name);
        if blocks.is_empty() {
            writer.tensor(name, &bytes)?;
        } else {
            let mut tensor = bytes.into_owned();
            totals.merge(&mut tensor, reader.entry(name)?.1, &blocks, adapter)?;
            writer.tensor(name, &tensor)?;
        }
        reader.release(name);
    }
    writer.finish()?;
    Ok(MergeReport {
        merged: totals.merged,
        embeddings: tables.len(),
        worst_error: totals.worst_error,
        unchanged: totals.sums.same as f64 / (totals.sums.weights as f64).max(1.0),
        base_named,
        base_sha256,
        merged_sha256: sha256_file(out)?,
    })
}

/// A trained table in the base's type.
fn table(adapter: &AdapterFile, name: &str, dtype: Dtype) -> Result<Vec<u8>, LoraError> {
    let values = widen(adapter.dtype(), adapter.tensor(name)?);
    if values.iter().any(|v| !v.is_finite()) {
        let name = name.to_string();
        return Err(LoraError::MergeMismatch { name, error: f64::NAN, limit: limit_of(dtype) });
    }
    let mut out = vec![0; values.len() * dtype.size()];
    narrow(dtype, &values, &mut out);
    Ok(out)
}

/// Bytes of one tensor in its common type, its parts one after the other.
fn joined<'r>(reader: &'r CanonicalReader, name: &str) -> Result<Cow<'r, [u8]>, LoraError> {
    let dtype = reader.entry(name)?.1;
    let mut parts = reader.parts(name)?;
    if parts.len() == 1 && parts[0].dtype == dtype {
        return Ok(parts.remove(0).bytes);
    }
    let mut all = Vec::new();
    for part in &parts {
        if part.dtype == dtype {
            all.extend_from_slice(&part.bytes);
        } else {
            // Parts of several types have f32 in common, which holds each of them exactly.
            all.extend(widen(part.dtype, &part.bytes).iter().flat_map(|v| v.to_le_bytes()));
        }
    }
    Ok(Cow::Owned(all))
}

/// What all linears so far gave.
#[derive(Default)]
struct Totals {
    merged: usize,
    worst_error: f64,
    sums: Sums,
}

impl Totals {
    /// Merges the blocks of one tensor in place.
    fn merge(
        &mut self,
        tensor: &mut [u8],
        dtype: Dtype,
        blocks: &[(&Site, i64, i64)],
        adapter: &AdapterFile,
    ) -> Result<(), LoraError> {
        for (site, step, row) in blocks {
            let block = Block::read(adapter, site, *step, dtype)?;
            let row_bytes = block.row_bytes();
            let rows = *row as usize * row_bytes..(*row + site.outputs) as usize * row_bytes;
            let sums = block.merge(&mut tensor[rows]);
            self.worst_error = self.worst_error.max(block.verify(&sums)?);
            self.sums = self.sums.plus(&sums);
        }
        self.merged += blocks.len();
        Ok(())
    }
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

fn limit_of(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { LIMIT_F32 } else { LIMIT_16_BIT }
}

/// What was seen while rows were merged.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// Squares of `W'x - wanted` and of `wanted`.
    error: f64,
    wanted: f64,
    weights: u64,
    same: u64,
}

impl Sums {
    fn plus(&self, other: &Self) -> Self {
        Self {
            error: self.error + other.error,
            wanted: self.wanted + other.wanted,
            weights: self.weights + other.weights,
            same: self.same + other.same,
        }
    }
}

/// The update of one linear and its probe.
struct Block {
    module: String,
    dtype: Dtype,
    scaling: f32,
    inputs: usize,
    rank: usize,
    /// `[rank, in]` and `[out, rank]`.
    a: Vec<f32>,
    b: Vec<f32>,
    /// Random inputs x `[in, 64]` and A x `[rank, 64]`.
    x: Vec<f32>,
    ax: Vec<f32>,
}

impl Block {
    fn read(adapter: &AdapterFile, site: &Site, step: i64, dtype: Dtype) -> Result<Self, LoraError> {
        let module = site.module_of(step);
        let half = |half| adapter.bytes(&module, half).map(|bytes| widen(adapter.dtype(), bytes));
        let (a, b) = (half(Half::A)?, half(Half::B)?);
        let (inputs, rank) = (site.inputs as usize, adapter.config().rank as usize);
        let mut rng = ChaCha8Rng::seed_from_u64(step as u64);
        let x: Vec<f32> = (0..inputs * CHECK_VECTORS).map(|_| rng.random_range(-1.0..1.0)).collect();
        let mut ax = vec![0.0; rank * CHECK_VECTORS];
        let columns = CHECK_VECTORS;
        add_product(&mut ax, 1.0, Matrix { values: &a, columns: inputs }, Matrix { values: &x, columns });
        let scaling = adapter.config().scaling as f32;
        Ok(Self { module, dtype, scaling, inputs, rank, a, b, x, ax })
    }

    fn row_bytes(&self) -> usize {
        self.inputs * self.dtype.size()
    }

    /// Updates the stored rows in place, on as many threads as the work is worth.
    fn merge(&self, rows: &mut [u8]) -> Sums {
        let outputs = rows.len() / self.row_bytes();
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // Below a strip or two, starting a thread costs more than it brings.
        let threads = cores.min(outputs / (2 * STRIP)).max(1);
        let share = outputs.div_ceil(threads);
        std::thread::scope(|scope| {
            let parts = rows.chunks_mut(share * self.row_bytes()).zip(self.b.chunks(share * self.rank));
            let running: Vec<_> =
                parts.map(|(rows, b)| scope.spawn(move || self.merge_strips(rows, b))).collect();
            running
                .into_iter()
                .map(|t| t.join().expect("strips do not panic on checked shapes"))
                .fold(Sums::default(), |all, part| all.plus(&part))
        })
    }

    fn merge_strips(&self, rows: &mut [u8], b: &[f32]) -> Sums {
        let strips = rows.chunks_mut(STRIP * self.row_bytes()).zip(b.chunks(STRIP * self.rank));
        strips.fold(Sums::default(), |all, (rows, b)| all.plus(&self.merge_strip(rows, b)))
    }

    fn merge_strip(&self, rows: &mut [u8], b: &[f32]) -> Sums {
        let b = Matrix { values: b, columns: self.rank };
        let a = Matrix { values: &self.a, columns: self.inputs };
        let (x, ax) = (
            Matrix { values: &self.x, columns: CHECK_VECTORS },
            Matrix { values: &self.ax, columns: CHECK_VECTORS },
        );
        let before = widen(self.dtype, rows);
        let mut after = before.clone();
        add_product(&mut after, self.scaling, b, a);
        narrow(self.dtype, &after, rows);
        let stored = widen(self.dtype, rows);

        let outputs = before.len() / self.inputs;
        let mut wanted = vec![0.0; outputs * CHECK_VECTORS];
        let mut found = wanted.clone();
        add_product(&mut wanted, 1.0, Matrix { values: &before, columns: self.inputs }, x);
        add_product(&mut wanted, self.scaling, b, ax);
        add_product(&mut found, 1.0, Matrix { values: &stored, columns: self.inputs }, x);
        let square = |v: f32| f64::from(v) * f64::from(v);
        Sums {
            error: found.iter().zip(&wanted).map(|(f, w)| square(f - w)).sum(),
            wanted: wanted.iter().map(|w| square(*w)).sum(),
            weights: before.len() as u64,
            same: before.iter().zip(&stored).filter(|(b, s)| b == s).count() as u64,
        }
    }

    /// The relative error, when it is within the limit of the stored type.
    fn verify(&self, sums: &Sums) -> Result<f64, LoraError> {
        let limit = limit_of(self.dtype);
        let error = (sums.error / sums.wanted.max(1e-24)).sqrt();
        if error.is_nan() || error > limit {
            return Err(LoraError::MergeMismatch { name: self.module.clone(), error, limit });
        }
        Ok(error)
    }
}
