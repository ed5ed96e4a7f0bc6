//! Integrated loudness by BS.1770 and normalisation to it.

use ebur128::{EbuR128, Mode};

use crate::error::{AudioError, library};
use crate::wav::Waveform;

/// Loudness of voice prompts in training and serving.
pub const TARGET_LUFS: f64 = -24.0;

/// Integrated loudness.
///
/// # Errors
/// When the audio is shorter than 400 ms or never rises above the gate.
pub fn integrated_lufs(wave: &Waveform) -> Result<f64, AudioError> {
    wave.check()?;
    let channels = u32::try_from(wave.channels.len()).unwrap_or(u32::MAX);
    let mut meter =
        EbuR128::new(channels, wave.rate, Mode::I).map_err(|e| library("cannot measure loudness")(&e))?;
    let planes: Vec<&[f32]> = wave.channels.iter().map(Vec::as_slice).collect();
    meter.add_frames_planar_f32(&planes).map_err(|e| library("cannot measure loudness")(&e))?;
    let lufs = meter.loudness_global().map_err(|e| library("cannot measure loudness")(&e))?;
    if lufs.is_finite() { Ok(lufs) } else { Err(AudioError::TooQuietOrShort { ms: wave.duration_ms() }) }
}

/// Scales to `target` LUFS and returns the gain in dB. Peaks are not limited, as in serving.
///
/// # Errors
/// See [`integrated_lufs`].
#[expect(clippy::cast_possible_truncation, reason = "f32 is the working precision")]
pub fn normalise(wave: &mut Waveform, target: f64) -> Result<f64, AudioError> {
    let gain_db = target - integrated_lufs(wave)?;
    let factor = 10f64.powf(gain_db / 20.0) as f32;
    wave.channels.iter_mut().flatten().for_each(|s| *s *= factor);
    Ok(gain_db)
}
