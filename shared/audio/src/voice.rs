//! Voice prompts: one treatment for registration, training and serving (personaplex.md 2.4).

use domain::frame::SAMPLE_RATE;

use crate::{AudioError, WavLimits, loudness, resample, wav};

/// Longest voice clip, seconds.
pub const MAX_VOICE_SECONDS: f64 = 60.0;
/// Shortest voice clip, milliseconds: one block of the loudness measure.
pub const MIN_VOICE_MS: u64 = 400;
/// Longest recording from which a clip may be cut, seconds.
const MAX_TRIMMED_SECONDS: f64 = 3_600.0;

/// What becomes of a recording that is longer than [`MAX_VOICE_SECONDS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LongVoice {
    /// It is refused; the error names the limit.
    #[default]
    Refuse,
    /// Its first minute is the clip.
    Trim,
}

/// Samples of a voice clip as the codec encodes them: mean of the channels, 24 kHz, -24 LUFS. Not yet whole frames: the
/// codec fills the last one with zeros. Peaks are not limited, as in the published package.
///
/// # Errors
/// When the bytes are no WAV of 1 or 2 channels at 8 to 96 kHz, or the clip is too short, too long or too quiet.
pub fn voice_samples(bytes: &[u8]) -> Result<Vec<f32>, AudioError> {
    voice_samples_with(bytes, LongVoice::Refuse)
}

/// As [`voice_samples`], with a choice for long recordings.
///
/// # Errors
/// As [`voice_samples`].
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a minute of samples")]
pub fn voice_samples_with(bytes: &[u8], long: LongVoice) -> Result<Vec<f32>, AudioError> {
    let max_seconds = match long {
        LongVoice::Refuse => MAX_VOICE_SECONDS,
        LongVoice::Trim => MAX_TRIMMED_SECONDS,
    };
    let mut clip = wav::parse(bytes, &WavLimits { max_seconds, ..WavLimits::default() })?.mix_down();
    if clip.duration_ms() <= MIN_VOICE_MS {
        return Err(AudioError::TooShort { ms: clip.duration_ms(), limit: MIN_VOICE_MS });
    }
    let longest = (MAX_VOICE_SECONDS * f64::from(clip.rate)) as usize;
    clip.channels.iter_mut().for_each(|c| c.truncate(longest));
    let mut clip = resample::to_house_rate(&clip)?;
    loudness::normalise(&mut clip, loudness::TARGET_LUFS)?;
    let mut samples = clip.channels.swap_remove(0);
    // Resampling may round up.
    samples.truncate((MAX_VOICE_SECONDS * f64::from(SAMPLE_RATE)) as usize);
    Ok(samples)
}
