//! Energy of stretches of sound, dB relative to full scale.

/// What digital silence measures.
pub const FLOOR_DBFS: f32 = -120.0;

/// Root mean square in dBFS, not below [`FLOOR_DBFS`].
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a level in dB needs no more"
)]
pub fn rms_dbfs(samples: &[f32]) -> f32 {
    if samples.is_empty() {
        return FLOOR_DBFS;
    }
    let mean = energy(samples) / samples.len() as f64;
    ((10.0 * mean.log10()) as f32).max(FLOOR_DBFS)
}

/// Sum of squares.
#[must_use]
pub fn energy(samples: &[f32]) -> f64 {
    samples.iter().map(|&s| f64::from(s) * f64::from(s)).sum()
}

/// Largest magnitude.
#[must_use]
pub fn peak(samples: &[f32]) -> f32 {
    samples.iter().fold(0.0, |m, s| m.max(s.abs()))
}

/// Level of each stretch of `samples_per_frame` samples; the last may be shorter.
#[must_use]
pub fn frame_levels(samples: &[f32], samples_per_frame: usize) -> Vec<f32> {
    samples.chunks(samples_per_frame.max(1)).map(rms_dbfs).collect()
}

/// Share of stretches below `threshold_dbfs`, 0..=1; 1 for no sound at all.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of frames are far below 2^53")]
pub fn silence_share(samples: &[f32], samples_per_frame: usize, threshold_dbfs: f32) -> f64 {
    let levels = frame_levels(samples, samples_per_frame);
    if levels.is_empty() {
        return 1.0;
    }
    levels.iter().filter(|&&l| l < threshold_dbfs).count() as f64 / levels.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_scale_square_is_zero_and_silence_is_the_floor() {
        assert!(rms_dbfs(&[1.0, -1.0, 1.0, -1.0]).abs() < 1e-5);
        assert!((rms_dbfs(&[0.1; 100]) + 20.0).abs() < 1e-3);
        assert!((rms_dbfs(&[0.0; 10]) - FLOOR_DBFS).abs() < f32::EPSILON);
        assert!((rms_dbfs(&[]) - FLOOR_DBFS).abs() < f32::EPSILON);
    }

    #[test]
    fn silence_is_counted_by_frame() {
        let mut samples = vec![0.0; 300];
        samples[250] = 0.9;
        assert!((silence_share(&samples, 100, -60.0) - 2.0 / 3.0).abs() < 1e-9);
        assert!((peak(&samples) - 0.9).abs() < 1e-6);
        assert_eq!(frame_levels(&samples[..250], 100).len(), 3);
    }
}
