//! Change of sample rate for whole clips.

use domain::frame::SAMPLE_RATE;
use rubato::audioadapter_buffers::direct::SequentialSliceOfVecs;
use rubato::{Fft, FixedSync, Resampler, WindowFunction};

use crate::error::{AudioError, library};
use crate::wav::Waveform;

/// Input frames of one transform; long enough for a steep filter at every pair of rates.
const CHUNK: usize = 1024;

/// Resamples a clip; the length is `len * to_rate / rate` within one sample and nothing is delayed.
///
/// # Errors
/// When a rate is outside 8..=96 kHz or the channels differ in length.
pub fn resample(wave: &Waveform, to_rate: u32) -> Result<Waveform, AudioError> {
    wave.check()?;
    for rate in [wave.rate, to_rate] {
        if !(8_000..=96_000).contains(&rate) {
            return Err(AudioError::BadRate(rate));
        }
    }
    if wave.rate == to_rate || wave.is_empty() {
        return Ok(Waveform { rate: to_rate, channels: wave.channels.clone() });
    }
    let channels = wave.channels.len();
    let mut resampler = Fft::<f32>::new_custom(
        wave.rate as usize,
        to_rate as usize,
        CHUNK,
        1,
        channels,
        WindowFunction::BlackmanHarris2,
        FixedSync::Input,
    )
    .map_err(|e| library("cannot set up the resampler")(&e))?;
    let input = SequentialSliceOfVecs::new(&wave.channels, channels, wave.len())
        .map_err(|e| library("cannot read the samples")(&e))?;
    let output = resampler
        .process_all(&input, wave.len(), None)
        .map_err(|e| library("cannot resample")(&e))?
        .take_data();
    let channels =
        (0..channels).map(|c| output.iter().skip(c).step_by(channels).copied().collect()).collect();
    Ok(Waveform { rate: to_rate, channels })
}

/// Resamples to 24 kHz, the rate of everything inside the house.
///
/// # Errors
/// See [`resample`].
pub fn to_house_rate(wave: &Waveform) -> Result<Waveform, AudioError> {
    resample(wave, SAMPLE_RATE)
}
