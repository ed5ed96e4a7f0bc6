//! From samples to features: mel-frequency cepstra with their first and second differences (speech.md 3.3).

use std::f64::consts::PI;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Samples per second that the model was trained on.
pub const SAMPLE_RATE: u32 = 16_000;
/// Samples from one frame to the next: 10 ms.
pub const HOP: usize = 160;
/// Samples of a frame: 25.6 ms.
pub const FRAME: usize = 410;
/// Milliseconds from one frame to the next.
pub const FRAME_MS: usize = 10;
/// Cepstral coefficients of a frame.
pub const COEFFICIENTS: usize = 13;
/// Feature streams: coefficients, first and second differences.
pub const STREAMS: usize = 3;

const FFT: usize = 512;
const FILTERS: usize = 25;
const LOWEST_HZ: f64 = 130.0;
const HIGHEST_HZ: f64 = 6800.0;
const PRE_EMPHASIS: f64 = 0.97;
const LIFTER: f64 = 22.0;
/// Added before the logarithm.
const FLOOR: f64 = 1e-4;

/// Cepstra of one frame.
pub type Cepstrum = [f32; COEFFICIENTS];
/// One frame as the model sees it: `[stream][coefficient]`.
pub type Feature = [Cepstrum; STREAMS];

/// Computes cepstra; holds window, filters and transform.
pub struct Frontend {
    fft: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    /// Per filter: first bin and the weights from there.
    filters: Vec<(usize, Vec<f64>)>,
    /// `[coefficient][filter]`, liftered.
    transform: Vec<[f64; FILTERS]>,
}

impl std::fmt::Debug for Frontend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frontend").field("filters", &self.filters.len()).finish_non_exhaustive()
    }
}

impl Default for Frontend {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_precision_loss, reason = "indices below 512")]
fn real(index: usize) -> f64 {
    index as f64
}

fn mel(hertz: f64) -> f64 {
    2595.0 * (1.0 + hertz / 700.0).log10()
}

fn hertz(mel: f64) -> f64 {
    700.0 * (10f64.powf(mel / 2595.0) - 1.0)
}

/// Triangles between neighbouring edges, each of unit area; edges lie on bins of the transform.
fn filters() -> Vec<(usize, Vec<f64>)> {
    let bin = f64::from(SAMPLE_RATE) / real(FFT);
    let step = (mel(HIGHEST_HZ) - mel(LOWEST_HZ)) / real(FILTERS + 1);
    let edges: Vec<f64> = (0..FILTERS + 2)
        .map(|i| ((hertz(mel(LOWEST_HZ) + real(i) * step) / bin + 0.5).floor()) * bin)
        .collect();
    edges
        .windows(3)
        .map(|edge| {
            let height = 2.0 / (edge[2] - edge[0]);
            let weight = |k: usize| {
                let at = real(k) * bin;
                let rising = (at - edge[0]) / (edge[1] - edge[0]);
                let falling = (edge[2] - at) / (edge[2] - edge[1]);
                height * rising.min(falling).max(0.0)
            };
            let all: Vec<f64> = (0..=FFT / 2).map(weight).collect();
            let first = all.iter().position(|w| *w > 0.0).unwrap_or(0);
            let last = all.iter().rposition(|w| *w > 0.0).unwrap_or(0);
            (first, all[first..=last].to_vec())
        })
        .collect()
}

/// Orthonormal cosine transform of the filters with the lifter applied.
fn transform() -> Vec<[f64; FILTERS]> {
    (0..COEFFICIENTS)
        .map(|i| {
            let scale = if i == 0 { 1.0 } else { 2.0 } / real(FILTERS);
            let lift = 1.0 + LIFTER / 2.0 * (PI * real(i) / LIFTER).sin();
            std::array::from_fn(|j| {
                lift * scale.sqrt() * (PI * real(i) * (real(j) + 0.5) / real(FILTERS)).cos()
            })
        })
        .collect()
}

/// Number of whole frames in so many samples.
#[must_use]
pub const fn frames_of(samples: usize) -> usize {
    if samples < FRAME { 0 } else { (samples - FRAME) / HOP + 1 }
}

impl Frontend {
    /// Prepares the tables.
    #[must_use]
    pub fn new() -> Self {
        let window = (0..FRAME).map(|i| 0.54 - 0.46 * (2.0 * PI * real(i) / real(FRAME - 1)).cos()).collect();
        Self {
            fft: RealFftPlanner::new().plan_fft_forward(FFT),
            window,
            filters: filters(),
            transform: transform(),
        }
    }

    /// Cepstra of mono sound at 16 kHz, one for every whole frame. Samples are on the scale of 16-bit integers.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "cepstra need no more than f32")]
    pub fn cepstra(&self, samples: &[f32]) -> Vec<Cepstrum> {
        let mut spectrum = self.fft.make_output_vec();
        let mut scratch = self.fft.make_scratch_vec();
        let mut input = vec![0.0; FFT];
        (0..frames_of(samples.len()))
            .map(|frame| {
                let start = frame * HOP;
                let mut before = start.checked_sub(1).map_or(0.0, |i| f64::from(samples[i]));
                input.fill(0.0);
                for ((to, sample), window) in input.iter_mut().zip(&samples[start..]).zip(&self.window) {
                    let sample = f64::from(*sample);
                    *to = (sample - PRE_EMPHASIS * before) * window;
                    before = sample;
                }
                self.fft
                    .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                    .expect("the buffers were made for this transform");
                let energies = self.log_energies(&spectrum);
                std::array::from_fn(|i| {
                    self.transform[i].iter().zip(&energies).map(|(a, b)| a * b).sum::<f64>() as f32
                })
            })
            .collect()
    }

    fn log_energies(&self, spectrum: &[Complex<f64>]) -> [f64; FILTERS] {
        std::array::from_fn(|filter| {
            let (first, weights) = &self.filters[filter];
            let energy: f64 = spectrum[*first..].iter().zip(weights).map(|(bin, w)| bin.norm_sqr() * w).sum();
            (energy + FLOOR).ln()
        })
    }
}

/// Mean of the cepstra; zero for none.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "counts of frames are small, cepstra are f32"
)]
pub fn mean(cepstra: &[Cepstrum]) -> Cepstrum {
    let mut sums = [0f64; COEFFICIENTS];
    for cepstrum in cepstra {
        sums.iter_mut().zip(cepstrum).for_each(|(sum, c)| *sum += f64::from(*c));
    }
    sums.map(|sum| (sum / cepstra.len().max(1) as f64) as f32)
}

/// Coefficients less `mean`, with differences; at both ends the outermost frame repeats.
#[must_use]
pub fn features(cepstra: &[Cepstrum], mean: &Cepstrum) -> Vec<Feature> {
    let last = cepstra.len().saturating_sub(1);
    let at =
        |frame: usize, shift: isize| -> &Cepstrum { &cepstra[frame.saturating_add_signed(shift).min(last)] };
    (0..cepstra.len())
        .map(|t| {
            let slope = |shift: isize, i: usize| at(t, shift + 2)[i] - at(t, shift - 2)[i];
            [
                std::array::from_fn(|i| cepstra[t][i] - mean[i]),
                std::array::from_fn(|i| slope(0, i)),
                std::array::from_fn(|i| slope(1, i) - slope(-1, i)),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_frames_count_and_short_sound_has_none() {
        for (samples, frames) in [(0, 0), (1, 0), (160, 0), (399, 0), (400, 0), (409, 0), (410, 1), (570, 2)]
        {
            assert_eq!(frames_of(samples), frames);
            let cepstra = Frontend::new().cepstra(&vec![1.0; samples]);
            assert_eq!(features(&cepstra, &mean(&cepstra)).len(), frames);
        }
    }

    #[test]
    fn filters_lie_between_the_band_edges_and_have_unit_area() {
        let bin = f64::from(SAMPLE_RATE) / real(FFT);
        for (first, weights) in filters() {
            assert!(
                real(first) * bin > LOWEST_HZ - bin && real(first + weights.len()) * bin < HIGHEST_HZ + bin
            );
            let area: f64 = weights.iter().sum::<f64>() * bin;
            assert!((area - 1.0).abs() < 1e-9, "{area}");
        }
    }
}
