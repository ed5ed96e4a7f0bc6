//! Sound as f32 samples: WAV, resampling, stereo routing, loudness, levels and Ogg-Opus.
//!
//! Every rate is stated; inside the house everything is 24 kHz. No async, and files only where a path is given.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod error;
pub mod levels;
pub mod loudness;
pub mod mix;
mod ogg;
pub mod opus;
pub mod resample;
pub mod voice;
pub mod wav;

pub use error::AudioError;
pub use wav::{WavLimits, Waveform};
