//! Voice prompts: one treatment for training and serving (personaplex.md 2.4).

use crate::{AudioError, WavLimits, loudness, resample, wav};

/// Samples of a voice clip as the codec encodes them: mono mix, 24 kHz, -24 LUFS.
///
/// # Errors
/// When the bytes are no WAV, or the clip is too short or too quiet to be measured.
pub fn voice_samples(bytes: &[u8]) -> Result<Vec<f32>, AudioError> {
    let clip = wav::parse(bytes, &WavLimits::default())?.mix_down();
    let mut clip = resample::to_house_rate(&clip)?;
    loudness::normalise(&mut clip, loudness::TARGET_LUFS)?;
    Ok(clip.channels.swap_remove(0))
}
