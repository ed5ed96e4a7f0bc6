//! The acoustic model: phones, Gaussians, mixture weights and transitions of a phonetically tied mixture model.

use std::path::Path;

use crate::bytes::Bytes;
use crate::error::AlignerError;
use crate::frontend::{COEFFICIENTS, STREAMS};
use crate::phones::{Phones, STATES};

/// Gaussians of a codebook and stream.
pub const DENSITIES: usize = 128;
/// Variances are not smaller.
const VARIANCE_FLOOR: f32 = 1e-4;
/// Natural logarithm of one step of a stored mixture weight: 1024 times ln 1.0001.
const WEIGHT_STEP: f64 = -0.102_394_88;

/// Diagonal Gaussians of one codebook and stream, densities innermost.
#[derive(Debug, Clone)]
pub(crate) struct Gaussians {
    /// `[coefficient][density]`
    pub means: [[f32; DENSITIES]; COEFFICIENTS],
    /// Half the inverse variance, `[coefficient][density]`.
    pub precisions: [[f32; DENSITIES]; COEFFICIENTS],
    /// Logarithm of the normalising factor.
    pub factors: [f32; DENSITIES],
}

/// What is known about the sounds of a language.
#[derive(Debug)]
pub struct AcousticModel {
    phones: Phones,
    /// `[codebook][stream]`
    gaussians: Vec<Gaussians>,
    /// Linear mixture weights, `[senone][stream][density]`.
    weights: Vec<[[f32; DENSITIES]; STREAMS]>,
    /// Natural logarithms, `[matrix][from][to]`; the last column leaves the phone.
    transitions: Vec<[[f32; STATES + 1]; STATES]>,
}

impl AcousticModel {
    /// Reads `mdef`, `means`, `variances`, `sendump` and `transition_matrices` of a folder.
    ///
    /// # Errors
    /// When a file is missing or of another kind.
    pub fn open(folder: &Path) -> Result<Self, AlignerError> {
        let phones = Phones::open(&folder.join("mdef"))?;
        let books = phones.names().len();
        let means = densities(&folder.join("means"), books)?;
        let variances = densities(&folder.join("variances"), books)?;
        let size = DENSITIES * COEFFICIENTS;
        let gaussians =
            means.chunks_exact(size).zip(variances.chunks_exact(size)).map(|(m, v)| tables(m, v)).collect();
        let weights = weights(&folder.join("sendump"), phones.senone_count())?;
        let transitions = transitions(&folder.join("transition_matrices"), books)?;
        Ok(Self { phones, gaussians, weights, transitions })
    }

    /// Phones and triphones.
    #[must_use]
    pub const fn phones(&self) -> &Phones {
        &self.phones
    }

    /// Logarithms of a transition matrix.
    #[must_use]
    pub fn transitions(&self, matrix: u32) -> &[[f32; STATES + 1]; STATES] {
        &self.transitions[matrix as usize]
    }

    pub(crate) fn gaussians(&self, codebook: u8) -> &[Gaussians] {
        let first = usize::from(codebook) * STREAMS;
        &self.gaussians[first..first + STREAMS]
    }

    pub(crate) fn weights(&self, senone: u16) -> &[[f32; DENSITIES]; STREAMS] {
        &self.weights[usize::from(senone)]
    }
}

/// Values `[codebook][stream][density][coefficient]`.
fn densities(path: &Path, books: usize) -> Result<Vec<f32>, AlignerError> {
    let mut file = Bytes::open(path)?;
    file.parameter_header()?;
    file.expect("codebooks, streams and densities", &[books, STREAMS, DENSITIES])?;
    file.expect("stream lengths", &[COEFFICIENTS; STREAMS])?;
    let count = books * STREAMS * DENSITIES * COEFFICIENTS;
    file.expect("values", &[count])?;
    let values = file.f32s(count)?;
    match values.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(file.wrong(format!("value {at} is {}", values[at]))),
        None => Ok(values),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
fn tables(means: &[f32], variances: &[f32]) -> Gaussians {
    let mut tables = Gaussians {
        means: [[0.0; DENSITIES]; COEFFICIENTS],
        precisions: [[0.0; DENSITIES]; COEFFICIENTS],
        factors: [0.0; DENSITIES],
    };
    for density in 0..DENSITIES {
        let mut factor = 0.0;
        for coefficient in 0..COEFFICIENTS {
            let at = density * COEFFICIENTS + coefficient;
            let variance = f64::from(variances[at].max(VARIANCE_FLOOR));
            tables.means[coefficient][density] = means[at];
            tables.precisions[coefficient][density] = (0.5 / variance) as f32;
            factor -= 0.5 * (std::f64::consts::TAU * variance).ln();
        }
        tables.factors[density] = factor as f32;
    }
    tables
}

#[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
fn weights(path: &Path, senones: usize) -> Result<Vec<[[f32; DENSITIES]; STREAMS]>, AlignerError> {
    let mut file = Bytes::open(path)?;
    for text in 0.. {
        let length = file.count()?;
        if length == 0 && text >= 2 {
            break;
        }
        let line = file.take(length)?.to_vec();
        if line.starts_with(b"cluster_count") && !line.starts_with(b"cluster_count 0") {
            return Err(file.wrong("its weights are clustered"));
        }
    }
    file.expect("densities and senones", &[DENSITIES, senones])?;
    let bytes = file.take(STREAMS * DENSITIES * senones)?;
    let linear: [f32; 256] = std::array::from_fn(|byte| (WEIGHT_STEP * byte as f64).exp() as f32);
    let mut weights = vec![[[0.0; DENSITIES]; STREAMS]; senones];
    for (row, values) in bytes.chunks_exact(senones).enumerate() {
        for (senone, byte) in weights.iter_mut().zip(values) {
            senone[row / DENSITIES][row % DENSITIES] = linear[usize::from(*byte)];
        }
    }
    Ok(weights)
}

fn transitions(path: &Path, books: usize) -> Result<Vec<[[f32; STATES + 1]; STATES]>, AlignerError> {
    let mut file = Bytes::open(path)?;
    file.parameter_header()?;
    let count = books * STATES * (STATES + 1);
    file.expect("matrices, states and columns", &[books, STATES, STATES + 1, count])?;
    let values = file.f32s(count)?;
    let row = |row: &[f32]| -> [f32; STATES + 1] {
        let total: f32 = row.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        std::array::from_fn(|to| (row[to] / total).ln())
    };
    Ok(values
        .chunks_exact(STATES * (STATES + 1))
        .map(|matrix| {
            std::array::from_fn(|from| row(&matrix[from * (STATES + 1)..(from + 1) * (STATES + 1)]))
        })
        .collect())
}
