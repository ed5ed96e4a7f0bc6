//! The frame grid: 12.5 frames a second, all conversions in integer milliseconds.

/// Samples per second of every waveform inside the house.
pub const SAMPLE_RATE: u32 = 24_000;
/// Samples of one frame at [`SAMPLE_RATE`].
pub const SAMPLES_PER_FRAME: usize = 1_920;
/// Milliseconds of one frame.
pub const MS_PER_FRAME: u64 = 80;
/// Frames per second.
pub const FRAME_RATE: f64 = 12.5;

/// Frame that contains the instant `ms`.
#[must_use]
pub const fn frame_floor(ms: u64) -> u64 {
    ms / MS_PER_FRAME
}

/// First frame that starts at or after the instant `ms`.
#[must_use]
pub const fn frame_ceil(ms: u64) -> u64 {
    ms.div_ceil(MS_PER_FRAME)
}

/// Frames needed to hold `samples` at [`SAMPLE_RATE`].
#[must_use]
pub const fn frames_for_samples(samples: usize) -> usize {
    samples.div_ceil(SAMPLES_PER_FRAME)
}

/// Milliseconds of `samples` at `rate`, rounded to the nearest.
#[must_use]
pub const fn samples_to_ms(samples: u64, rate: u32) -> u64 {
    (samples * 1000 + rate as u64 / 2) / rate as u64
}

/// Samples up to the instant `ms` at `rate`.
#[must_use]
pub const fn ms_to_samples(ms: u64, rate: u32) -> u64 {
    ms * rate as u64 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_milliseconds_do_not_slip_a_frame() {
        // 0.56 s times 12.5 is 7 frames; the product in f64 is above 7 and its ceiling is 8.
        assert_eq!(frame_ceil(560), 7);
        assert_eq!(frame_floor(559), 6);
        assert_eq!(frame_floor(560), 7);
        assert_eq!(frames_for_samples(1_921), 2);
    }
}
