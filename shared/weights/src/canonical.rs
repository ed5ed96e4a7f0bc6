use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use crate::{
    CheckpointSource, Dtype, NameReport, Spelling, TensorSpec, WeightsError, moshi, spelling::Origin,
};

/// A checkpoint in any spelling, read by the names of the inventory.
#[derive(Debug)]
pub struct CanonicalReader {
    source: CheckpointSource,
    spelling: Spelling,
    entries: BTreeMap<String, Canonical>,
}

#[derive(Debug, Clone)]
struct Canonical {
    shape: Vec<i64>,
    dtype: Dtype,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Tensor(String),
    Zeros { rows: i64 },
}

/// Some rows of a tensor. The parts of a tensor, one after the other, are its rows.
#[derive(Debug)]
pub struct Part<'a> {
    /// Name in the file; `None` for zeros that a rule asked for.
    pub source: Option<&'a str>,
    pub dtype: Dtype,
    pub shape: Vec<i64>,
    /// Little-endian, row-major.
    pub bytes: Cow<'a, [u8]>,
}

impl CanonicalReader {
    /// Opens a checkpoint in any form and spelling; it must hold exactly `wanted`. See [`CheckpointSource::open`] for
    /// the forms of `path`.
    pub fn open(path: &Path, wanted: &[TensorSpec]) -> Result<Self, WeightsError> {
        Self::new(CheckpointSource::open(path)?, wanted)
    }

    /// Finds the spelling of `source` and where each tensor of `wanted` comes from. The error is one report of every
    /// missing, unexpected and wrong-shaped name and wrong type, or says that this is a Moshi model without the second half of
    /// its depformer.
    pub fn new(source: CheckpointSource, wanted: &[TensorSpec]) -> Result<Self, WeightsError> {
        let path = source.path().to_path_buf();
        let spelling = detect(&source)?;
        let (origins, report) = compare(&source, spelling, wanted);
        if !report.is_clean() {
            let plain = moshi::eight_steps(wanted).filter(|w| compare(&source, spelling, w).1.is_clean());
            return Err(match plain {
                Some(_) => {
                    let (found, wanted) = (source.tensors().count(), wanted.len());
                    WeightsError::PlainMoshi { path, found, wanted }
                }
                None => WeightsError::Names { path, report: Box::new(report) },
            });
        }
        let mut entries = BTreeMap::new();
        for (spec, origin) in wanted.iter().zip(origins) {
            let pieces = match &origin {
                Origin::Rows(specs) => specs.iter().map(|s| Piece::Tensor(s.name.clone())).collect(),
                Origin::Copies(specs) => vec![one_copy(&source, spec, specs)?],
            };
            let dtype = common_dtype(&source, origin.tensors())?;
            entries.insert(spec.name.clone(), Canonical { shape: spec.shape.clone(), dtype, pieces });
        }
        Ok(Self { source, spelling, entries })
    }

    /// Every tensor under the name it has, whatever it is.
    pub fn any(source: CheckpointSource) -> Self {
        let entries = source.tensors().map(|(name, e)| {
            let pieces = vec![Piece::Tensor(name.to_string())];
            (name.to_string(), Canonical { shape: e.shape.clone(), dtype: e.dtype, pieces })
        });
        Self { entries: entries.collect(), spelling: Spelling::PUBLISHED, source }
    }

    pub fn source(&self) -> &CheckpointSource {
        &self.source
    }

    pub fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// Names and shapes, in name order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[i64])> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry.shape.as_slice()))
    }

    /// Shape of one tensor, and the type that holds all its parts without loss.
    pub fn entry(&self, name: &str) -> Result<(&[i64], Dtype), WeightsError> {
        self.find(name).map(|entry| (entry.shape.as_slice(), entry.dtype))
    }

    /// The rows of one tensor in order, straight from the map. [`CanonicalReader::release`] when done with them.
    pub fn parts(&self, name: &str) -> Result<Vec<Part<'_>>, WeightsError> {
        let entry = self.find(name)?;
        entry.pieces.iter().map(|piece| self.part(entry, piece)).collect()
    }

    fn part<'a>(&'a self, entry: &Canonical, piece: &'a Piece) -> Result<Part<'a>, WeightsError> {
        match piece {
            Piece::Tensor(name) => {
                let (found, bytes) = self.source.tensor(name)?;
                let (dtype, shape) = (found.dtype, found.shape.clone());
                Ok(Part { source: Some(name), dtype, shape, bytes: Cow::Borrowed(bytes) })
            }
            Piece::Zeros { rows } => {
                let shape = [&[*rows], &entry.shape[1..]].concat();
                let count = shape.iter().product::<i64>() as usize * entry.dtype.size();
                Ok(Part { source: None, dtype: entry.dtype, shape, bytes: Cow::Owned(vec![0; count]) })
            }
        }
    }

    /// Gives the pages of one tensor back to the kernel ([`crate::SafetensorsFile::release`]).
    pub fn release(&self, name: &str) {
        for piece in self.entries.get(name).iter().flat_map(|e| &e.pieces) {
            if let Piece::Tensor(name) = piece {
                self.source.release(name);
            }
        }
    }

    /// The same source read by the rules that double a depformer of 8 steps; `wanted` has 16.
    pub(crate) fn adapted(self, wanted: &[TensorSpec]) -> Result<(Self, moshi::Adaptation), WeightsError> {
        let mut entries = BTreeMap::new();
        let mut done = moshi::Adaptation::default();
        for spec in wanted {
            let rule = moshi::rule(&spec.name);
            done.count(&spec.name, &rule);
            let (from, times) = match &rule {
                moshi::Rule::Same => (spec.name.as_str(), 1),
                moshi::Rule::Twice => (spec.name.as_str(), 2),
                moshi::Rule::Copy { source } => (source.as_str(), 1),
                moshi::Rule::Zeros { like } => (like.as_str(), 0),
            };
            let found = self.find(from)?;
            let mut pieces = vec![found.pieces.clone(); times].concat();
            if times == 0 {
                pieces.push(Piece::Zeros { rows: spec.shape[0] });
            }
            let entry = Canonical { shape: spec.shape.clone(), dtype: found.dtype, pieces };
            entries.insert(spec.name.clone(), entry);
        }
        Ok((Self { entries, ..self }, done))
    }

    fn find(&self, name: &str) -> Result<&Canonical, WeightsError> {
        let path = || self.source.path().to_path_buf();
        self.entries.get(name).ok_or_else(|| WeightsError::NoTensor { path: path(), name: name.into() })
    }
}

pub(crate) fn detect(source: &CheckpointSource) -> Result<Spelling, WeightsError> {
    let names: Vec<&str> = source.tensors().map(|(name, _)| name).collect();
    Spelling::detect(names.iter().copied()).map_err(|(first, second)| WeightsError::MixedSpellings {
        path: source.path().into(),
        first,
        second,
    })
}

fn compare(
    source: &CheckpointSource,
    spelling: Spelling,
    wanted: &[TensorSpec],
) -> (Vec<Origin>, NameReport) {
    let steps = moshi::steps(wanted).max(1);
    let origins: Vec<Origin> = wanted.iter().map(|spec| spelling.origin(spec, steps)).collect();
    let spelled: Vec<TensorSpec> = origins.iter().flat_map(|o| o.tensors().to_vec()).collect();
    let report = NameReport::of(source.tensors(), &spelled);
    (origins, report)
}

/// The first of several copies, after comparing it with the others.
fn one_copy(
    source: &CheckpointSource,
    spec: &TensorSpec,
    copies: &[TensorSpec],
) -> Result<Piece, WeightsError> {
    let first = &copies[0].name;
    let bytes = source.tensor(first)?.1;
    for copy in &copies[1..] {
        if source.tensor(&copy.name)?.1 != bytes {
            return Err(WeightsError::UnequalCopies {
                path: source.path().into(),
                name: spec.name.clone(),
                first: first.clone(),
                second: copy.name.clone(),
            });
        }
    }
    Ok(Piece::Tensor(first.clone()))
}

fn common_dtype(source: &CheckpointSource, tensors: &[TensorSpec]) -> Result<Dtype, WeightsError> {
    let first = source.tensor(&tensors[0].name)?.0.dtype;
    for spec in tensors {
        if source.tensor(&spec.name)?.0.dtype != first {
            // F16 and BF16 both fit into F32 exactly.
            return Ok(Dtype::F32);
        }
    }
    Ok(first)
}
