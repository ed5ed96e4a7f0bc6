use std::sync::Arc;

use audio::levels::rms_dbfs;
use domain::frame::{SAMPLE_RATE, SAMPLES_PER_FRAME};
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Level below which a frame is silent.
const SILENCE_DBFS: f32 = -50.0;
/// Speech has little energy above this; broken codes screech there.
const SCREECH_HZ: f64 = 6000.0;
/// Share of a frame's energy above it from which the frame counts as screeching.
const SCREECH_SHARE: f64 = 0.5;
/// Level from which a sample counts as clipped.
const CLIPPED: f32 = 0.999;

/// Counts over frames of 80 ms and samples at 24 kHz.
pub(super) struct Sound {
    spectrum: Arc<dyn RealToComplex<f32>>,
    frames: usize,
    silent: usize,
    screeching: usize,
    samples: usize,
    clipped: usize,
}

impl Sound {
    pub(super) fn new() -> Self {
        let spectrum = RealFftPlanner::new().plan_fft_forward(SAMPLES_PER_FRAME);
        Self { spectrum, frames: 0, silent: 0, screeching: 0, samples: 0, clipped: 0 }
    }

    /// Counts one recording.
    pub(super) fn add(&mut self, samples: &[f32]) {
        for frame in samples.chunks(SAMPLES_PER_FRAME) {
            self.frames += 1;
            if rms_dbfs(frame) < SILENCE_DBFS {
                self.silent += 1;
            } else if self.high_share(frame) > SCREECH_SHARE {
                self.screeching += 1;
            }
        }
        self.samples += samples.len();
        self.clipped += samples.iter().filter(|s| s.abs() >= CLIPPED).count();
    }

    /// Share of a frame's energy above 6 kHz, 0..=1. A frame that is too short is filled with zeros.
    fn high_share(&self, frame: &[f32]) -> f64 {
        let mut wave = self.spectrum.make_input_vec();
        wave[..frame.len()].copy_from_slice(frame);
        let mut bins = self.spectrum.make_output_vec();
        if self.spectrum.process(&mut wave, &mut bins).is_err() {
            unreachable!("both were made for this transform");
        }
        let last = bins.len() - 1;
        // Each bin between the first and the last stands for two.
        let energy = |(k, bin): (usize, &Complex<f32>)| {
            let one = f64::from(bin.re).powi(2) + f64::from(bin.im).powi(2);
            if k == 0 || k == last { one } else { 2.0 * one }
        };
        let width = f64::from(SAMPLE_RATE) / SAMPLES_PER_FRAME as f64;
        let is_high = |k: usize| k as f64 * width > SCREECH_HZ;
        let all: f64 = bins.iter().enumerate().map(energy).sum();
        let high: f64 = bins.iter().enumerate().filter(|(k, _)| is_high(*k)).map(energy).sum();
        if all > 0.0 { high / all } else { 0.0 }
    }

    /// Share of the frames that are silent, percent.
    pub(super) fn silence_pct(&self) -> Option<f64> {
        percent(self.silent, self.frames)
    }

    /// Share of the frames that are not silent whose energy is mostly above 6 kHz, percent. A few percent are ordinary:
    /// a long s is such a frame.
    pub(super) fn screech_pct(&self) -> Option<f64> {
        percent(self.screeching, self.frames - self.silent)
    }

    /// Share of the samples at full scale, percent.
    pub(super) fn clipped_pct(&self) -> Option<f64> {
        percent(self.clipped, self.samples)
    }
}

fn percent(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    fn tone(hz: f64, level: f64) -> Vec<f32> {
        let wave = |i: usize| (level * (TAU * hz * i as f64 / f64::from(SAMPLE_RATE)).sin()) as f32;
        (0..24_000).map(wave).collect()
    }

    /// Silence, screech and clipping of a second of sound, percent.
    fn heard(samples: &[f32]) -> [Option<f64>; 3] {
        let mut sound = Sound::new();
        sound.add(samples);
        [sound.silence_pct(), sound.screech_pct(), sound.clipped_pct()]
    }

    #[test]
    fn a_low_tone_is_a_voice_and_a_tone_of_8_khz_a_screech() {
        assert_eq!(heard(&tone(440.0, 0.3)), [Some(0.0), Some(0.0), Some(0.0)]);
        assert_eq!(heard(&tone(8000.0, 0.3)), [Some(0.0), Some(100.0), Some(0.0)]);
        assert_eq!(heard(&tone(5500.0, 0.3))[1], Some(0.0));
        assert_eq!(heard(&tone(6500.0, 0.3))[1], Some(100.0));
    }

    #[test]
    fn a_whistle_over_a_voice_is_a_screech_when_it_is_louder() {
        let both = |whistle: f64| -> Vec<f32> {
            tone(440.0, 0.3).iter().zip(tone(8000.0, whistle)).map(|(a, b)| a + b).collect()
        };
        assert_eq!(heard(&both(0.25))[1], Some(0.0));
        assert_eq!(heard(&both(0.35))[1], Some(100.0));
    }

    #[test]
    fn silence_is_silent_and_neither_screeches_nor_is_there_anything_to_say_of_no_sound() {
        assert_eq!(heard(&[0.0; 24_000]), [Some(100.0), None, Some(0.0)]);
        // -50 dBFS is an amplitude of 0.0045.
        assert_eq!(heard(&tone(440.0, 0.004))[0], Some(100.0));
        assert_eq!(heard(&tone(440.0, 0.005))[0], Some(0.0));
        assert_eq!(heard(&[]), [None, None, None]);
        let mut half = tone(440.0, 0.3);
        half[12 * SAMPLES_PER_FRAME / 2..].fill(0.0);
        assert_eq!(heard(&half[..12 * SAMPLES_PER_FRAME])[0], Some(50.0));
    }

    #[test]
    fn a_clipped_square_wave_is_clipped_and_no_screech() {
        let square: Vec<f32> = tone(440.0, 1.0).iter().map(|s| s.signum()).collect();
        let [silence, screech, clipped] = heard(&square);
        assert_eq!((silence, screech), (Some(0.0), Some(0.0)));
        assert!(clipped > Some(99.0), "{clipped:?}");
        assert!(
            heard(&tone(440.0, 5.0).iter().map(|s| s.clamp(-1.0, 1.0)).collect::<Vec<_>>())[2] > Some(80.0)
        );
    }
}
