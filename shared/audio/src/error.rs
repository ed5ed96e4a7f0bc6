//! What can be wrong with sound.

use std::path::PathBuf;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// A file cannot be read or written.
    #[error("cannot access {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The bytes are not a WAV file.
    #[error("not a wav file: {0}")]
    NotWav(String),
    /// A WAV of a kind that is not read.
    #[error("unsupported wav: {0}")]
    UnsupportedWav(String),
    /// The data chunk is longer than the file.
    #[error("wav is cut short: {declared} bytes of samples are declared, {present} are there")]
    Truncated {
        /// Bytes the header promises.
        declared: usize,
        /// Bytes there are.
        present: usize,
    },
    /// More channels than the caller takes.
    #[error("audio has {channels} channels, at most {limit} are accepted")]
    TooManyChannels {
        /// Channels found.
        channels: u16,
        /// Largest accepted number.
        limit: u16,
    },
    /// Longer than the caller takes.
    #[error("audio lasts {seconds:.1} s, at most {limit:.1} s are accepted")]
    TooLong {
        /// Seconds found.
        seconds: f64,
        /// Largest accepted length.
        limit: f64,
    },
    /// Shorter than the caller takes.
    #[error("audio lasts {ms} ms, more than {limit} ms are needed")]
    TooShort {
        /// Milliseconds found.
        ms: u64,
        /// Length that must be exceeded.
        limit: u64,
    },
    /// A rate that is not speech.
    #[error("sample rate {0} Hz is outside 8000..=96000")]
    BadRate(u32),
    /// NaN or infinity.
    #[error("sample {index} of channel {channel} is not a finite number")]
    NotFinite {
        /// Channel.
        channel: usize,
        /// Position.
        index: usize,
    },
    /// Channels of different lengths, or none.
    #[error("channels have the lengths {0:?}")]
    UnevenChannels(Vec<usize>),
    /// Loudness needs more sound.
    #[error("loudness cannot be measured on {ms} ms of audio; at least 400 ms above silence are needed")]
    TooQuietOrShort {
        /// Length of the audio.
        ms: u64,
    },
    /// No words, so nobody to route to.
    #[error("no segment to route the audio by")]
    NoSegments,
    /// Opus cannot use these settings.
    #[error("opus packets of {0} samples do not exist; 60, 120, 240, 480, 960 or 1440 at 24 kHz do")]
    BadPacketLength(usize),
    /// The library refused.
    #[error("{action}: {reason}")]
    Library {
        /// What was tried.
        action: &'static str,
        /// What the library said.
        reason: String,
    },
}

pub(crate) fn library(action: &'static str) -> impl FnOnce(&dyn std::fmt::Display) -> AudioError {
    move |reason| AudioError::Library { action, reason: reason.to_string() }
}
