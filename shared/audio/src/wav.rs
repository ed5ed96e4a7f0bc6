//! WAV in and out: PCM 8, 16, 24, 32 bit and 32-bit float in, PCM16 out.

use std::io::Cursor;
use std::path::Path;

use hound::{SampleFormat, WavReader, WavSpec, WavWriter};

use crate::error::{AudioError, library};

/// Sound in memory, one list of samples per channel, nominally in -1..=1.
#[derive(Debug, Clone, PartialEq)]
pub struct Waveform {
    /// Samples per second.
    pub rate: u32,
    /// Channels of equal length; left is the agent, right the user.
    pub channels: Vec<Vec<f32>>,
}

impl Waveform {
    /// One channel.
    #[must_use]
    pub fn mono(rate: u32, samples: Vec<f32>) -> Self {
        Self { rate, channels: vec![samples] }
    }

    /// Two channels; the shorter one is filled with silence.
    #[must_use]
    pub fn stereo(rate: u32, mut left: Vec<f32>, mut right: Vec<f32>) -> Self {
        let len = left.len().max(right.len());
        left.resize(len, 0.0);
        right.resize(len, 0.0);
        Self { rate, channels: vec![left, right] }
    }

    /// Samples per channel.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.first().map_or(0, Vec::len)
    }

    /// Whether there is no sample at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length in milliseconds, rounded to the nearest.
    #[must_use]
    pub fn duration_ms(&self) -> u64 {
        domain::frame::samples_to_ms(self.len() as u64, self.rate)
    }

    /// The mean of all channels as one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a handful of channels")]
    pub fn mix_down(&self) -> Self {
        let share = 1.0 / self.channels.len().max(1) as f32;
        let mixed =
            (0..self.len()).map(|i| self.channels.iter().map(|c| c[i]).sum::<f32>() * share).collect();
        Self::mono(self.rate, mixed)
    }

    /// Checks what every function here relies on.
    ///
    /// # Errors
    /// When there is no channel or the lengths differ.
    pub fn check(&self) -> Result<(), AudioError> {
        let lengths: Vec<usize> = self.channels.iter().map(Vec::len).collect();
        match lengths.first() {
            Some(first) if lengths.iter().all(|l| l == first) => Ok(()),
            _ => Err(AudioError::UnevenChannels(lengths)),
        }
    }
}

/// How much is accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WavLimits {
    /// Longest audio, seconds.
    pub max_seconds: f64,
    /// Most channels.
    pub max_channels: u16,
}

impl Default for WavLimits {
    fn default() -> Self {
        Self { max_seconds: 3600.0, max_channels: 2 }
    }
}

/// Reads a WAV file.
///
/// # Errors
/// See [`parse`]; also when the file cannot be read.
pub fn read(path: &Path, limits: &WavLimits) -> Result<Waveform, AudioError> {
    parse(&std::fs::read(path).map_err(|source| file_error(path, source))?, limits)
}

/// Reads WAV bytes. A data chunk of unknown length (streamed WAV) runs to the end of the bytes.
///
/// # Errors
/// When the bytes are no WAV, are cut short, exceed the limits, or contain NaN or infinity.
pub fn parse(bytes: &[u8], limits: &WavLimits) -> Result<Waveform, AudioError> {
    let bytes = mend_streamed_sizes(bytes)?;
    let reader = WavReader::new(Cursor::new(&bytes[..])).map_err(wav_error)?;
    let spec = reader.spec();
    check_limits(spec, reader.duration(), limits)?;
    let mut channels = vec![Vec::with_capacity(reader.duration() as usize); usize::from(spec.channels)];
    match spec.sample_format {
        SampleFormat::Float => spread(reader.into_samples::<f32>(), &mut channels, |s| s)?,
        SampleFormat::Int => {
            let scale = 1.0 / f64::from(1u32 << (spec.bits_per_sample - 1));
            #[expect(clippy::cast_possible_truncation, reason = "f32 is the working precision")]
            spread(reader.into_samples::<i32>(), &mut channels, |s| (f64::from(s) * scale) as f32)?;
        }
    }
    check_finite(&channels)?;
    Ok(Waveform { rate: spec.sample_rate, channels })
}

fn spread<S>(
    samples: impl Iterator<Item = hound::Result<S>>,
    channels: &mut [Vec<f32>],
    convert: impl Fn(S) -> f32,
) -> Result<(), AudioError> {
    let count = channels.len();
    for (i, sample) in samples.enumerate() {
        channels[i % count].push(convert(sample.map_err(wav_error)?));
    }
    Ok(())
}

fn check_limits(spec: WavSpec, frames: u32, limits: &WavLimits) -> Result<(), AudioError> {
    if spec.channels == 0 || spec.channels > limits.max_channels {
        return Err(AudioError::TooManyChannels { channels: spec.channels, limit: limits.max_channels });
    }
    if !(8_000..=192_000).contains(&spec.sample_rate) {
        return Err(AudioError::BadRate(spec.sample_rate));
    }
    let seconds = f64::from(frames) / f64::from(spec.sample_rate);
    if seconds > limits.max_seconds {
        return Err(AudioError::TooLong { seconds, limit: limits.max_seconds });
    }
    Ok(())
}

fn check_finite(channels: &[Vec<f32>]) -> Result<(), AudioError> {
    for (channel, samples) in channels.iter().enumerate() {
        if let Some(index) = samples.iter().position(|s| !s.is_finite()) {
            return Err(AudioError::NotFinite { channel, index });
        }
    }
    Ok(())
}

/// Sizes that mean "not known yet" become the real ones; sizes past the end are an error here, not a short read.
fn mend_streamed_sizes(bytes: &[u8]) -> Result<std::borrow::Cow<'_, [u8]>, AudioError> {
    if bytes.len() < 12 || &bytes[..4] != b"RIFF" || &bytes[8..12] != b"WAVE" {
        let head: String = bytes.iter().take(12).map(|b| b.escape_ascii().to_string()).collect();
        return Err(AudioError::NotWav(format!("{} bytes starting with \"{head}\"", bytes.len())));
    }
    let mut at = 12;
    let mut block = 0usize;
    while let Some(header) = bytes.get(at..at + 8) {
        let declared = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let body = at + 8;
        let present = bytes.len() - body;
        if &header[..4] == b"fmt " && present >= 16 {
            block = usize::from(u16::from_le_bytes([bytes[body + 12], bytes[body + 13]]));
        } else if &header[..4] == b"data" {
            let streamed = declared >= 0x7fff_0000 || (declared == 0 && present > 0);
            if !streamed && declared > present {
                return Err(AudioError::Truncated { declared, present });
            }
            if !streamed {
                return Ok(bytes.into());
            }
            let whole = present - present.checked_rem(block).unwrap_or(0);
            let mut mended = bytes[..body + whole].to_vec();
            let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
            mended[at + 4..body].copy_from_slice(&size(whole));
            mended[4..8].copy_from_slice(&size(body + whole - 8));
            return Ok(mended.into());
        }
        at = body.saturating_add(declared).saturating_add(declared % 2);
    }
    Err(AudioError::NotWav("there is no data chunk".into()))
}

/// PCM16 bytes; samples outside -1..=1 are clipped.
///
/// # Errors
/// When the channels differ in length or carry NaN or infinity.
pub fn encode_pcm16(wave: &Waveform) -> Result<Vec<u8>, AudioError> {
    wave.check()?;
    check_finite(&wave.channels)?;
    let channels = u16::try_from(wave.channels.len()).unwrap_or(u16::MAX);
    let spec =
        WavSpec { channels, sample_rate: wave.rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut out = Cursor::new(Vec::with_capacity(44 + wave.len() * 2 * wave.channels.len()));
    let mut writer = WavWriter::new(&mut out, spec).map_err(wav_error)?;
    for i in 0..wave.len() {
        for channel in &wave.channels {
            writer.write_sample(into_pcm16(channel[i])).map_err(wav_error)?;
        }
    }
    writer.finalize().map_err(wav_error)?;
    Ok(out.into_inner())
}

/// Writes a PCM16 WAV file.
///
/// # Errors
/// See [`encode_pcm16`]; also when the file cannot be written.
pub fn write_pcm16(path: &Path, wave: &Waveform) -> Result<(), AudioError> {
    std::fs::write(path, encode_pcm16(wave)?).map_err(|source| file_error(path, source))
}

/// Nearest 16-bit value, clipped.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i16 first")]
pub fn into_pcm16(sample: f32) -> i16 {
    (sample * 32_768.0).round().clamp(-32_768.0, 32_767.0) as i16
}

fn file_error(path: &Path, source: std::io::Error) -> AudioError {
    AudioError::File { path: path.to_owned(), source }
}

fn wav_error(error: hound::Error) -> AudioError {
    match error {
        hound::Error::FormatError(reason) => AudioError::NotWav(reason.into()),
        hound::Error::Unsupported | hound::Error::TooWide | hound::Error::InvalidSampleFormat => {
            AudioError::UnsupportedWav(error.to_string())
        }
        other => library("cannot read wav")(&other),
    }
}
