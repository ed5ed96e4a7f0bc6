//! Scores of senones: exact mixtures of all 128 densities of every stream.
//!
//! A mixture is `ln sum exp(weight + density)`. With the largest density taken out, the sum over densities is a dot
//! product of linear weights and scaled densities, which all senones of a codebook share.

use crate::frontend::{COEFFICIENTS, Feature, STREAMS};
use crate::model::{AcousticModel, DENSITIES, Gaussians};

/// Frames that are scored together: their densities stay in the cache while the weights pass by.
pub const BLOCK: usize = 16;

/// Scores the senones of one graph.
#[derive(Debug)]
pub struct Scorer<'m> {
    model: &'m AcousticModel,
    /// Per codebook: the columns of its senones.
    columns: Vec<(u8, Vec<(usize, u16)>)>,
    width: usize,
}

impl<'m> Scorer<'m> {
    /// Column `i` of the scores is `senones[i]`.
    #[must_use]
    pub fn new(model: &'m AcousticModel, senones: &[u16]) -> Self {
        let mut by_book: Vec<Vec<(usize, u16)>> = vec![Vec::new(); model.phones().names().len()];
        for (column, senone) in senones.iter().enumerate() {
            by_book[usize::from(model.phones().codebooks()[usize::from(*senone)])].push((column, *senone));
        }
        let columns = (0u8..).zip(by_book).filter(|(_, list)| !list.is_empty()).collect();
        Self { model, columns, width: senones.len() }
    }

    /// Writes natural-log scores of at most [`BLOCK`] frames, row by row, `senones.len()` values a row.
    #[expect(clippy::cast_possible_truncation, reason = "scores are f32")]
    pub fn score(&self, frames: &[Feature], out: &mut [f32]) {
        let mut scaled = vec![[[0f32; DENSITIES]; STREAMS]; frames.len()];
        let mut largest = vec![0f64; frames.len()];
        for (book, columns) in &self.columns {
            let gaussians = self.model.gaussians(*book);
            for ((frame, scaled), largest) in frames.iter().zip(&mut scaled).zip(&mut largest) {
                *largest = 0.0;
                for stream in 0..STREAMS {
                    let top = densities(&gaussians[stream], &frame[stream], &mut scaled[stream]);
                    *largest += f64::from(top);
                }
            }
            for (column, senone) in columns {
                let weights = self.model.weights(*senone);
                for (row, (scaled, largest)) in scaled.iter().zip(&largest).enumerate() {
                    let mut product = 1f64;
                    for stream in 0..STREAMS {
                        product *= f64::from(dot(&weights[stream], &scaled[stream]));
                    }
                    out[row * self.width + column] = (largest + product.ln()) as f32;
                }
            }
        }
    }
}

/// Densities divided by the largest, whose logarithm is returned.
fn densities(gaussians: &Gaussians, x: &[f32; COEFFICIENTS], scaled: &mut [f32; DENSITIES]) -> f32 {
    scaled.copy_from_slice(&gaussians.factors);
    for ((x, means), precisions) in x.iter().zip(&gaussians.means).zip(&gaussians.precisions) {
        for ((score, mean), precision) in scaled.iter_mut().zip(means).zip(precisions) {
            let distance = x - mean;
            *score -= distance * distance * precision;
        }
    }
    let top = scaled.iter().fold(f32::NEG_INFINITY, |top, score| if *score > top { *score } else { top });
    for score in scaled.iter_mut() {
        *score = exp(*score - top);
    }
    top
}

fn dot(a: &[f32; DENSITIES], b: &[f32; DENSITIES]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

/// `e^x` for `x <= 0`, to 5e-6 relative; what is below e^-86 counts as that. Free of branches, so that it is
/// computed for several values at once.
#[inline]
fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it rounds to an integer that stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let y = if x > -86.0 { x } else { -86.0 } * std::f32::consts::LOG2_E;
    let rounded = y + ROUND;
    let f = y - (rounded - ROUND);
    let p = 1.0
        + f * (std::f32::consts::LN_2
            + f * (0.240_226_5
                + f * (0.055_504_11 + f * (0.009_618_13 + f * (0.001_333_36 + f * 0.000_154_04)))));
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    p * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_exact_to_single_precision() {
        let mut x = 0.0f32;
        while x > -85.0 {
            let (ours, right) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / right - 1.0).abs() < 5e-6, "{x}: {ours} {right}");
            x -= 0.0137;
        }
        assert!(exp(-1e9) < 1e-37 && exp(0.0) <= 1.0);
    }
}
