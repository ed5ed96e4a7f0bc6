//! Rates, sides and loudness.

use audio::levels::{energy, peak, rms_dbfs};
use audio::loudness::{TARGET_LUFS, integrated_lufs, normalise};
use audio::mix::{Boundary, Clip, Segment, assemble, route_stereo, segments_from_words};
use audio::resample::{resample, to_house_rate};
use audio::{AudioError, Waveform};
use domain::alignment::AlignedWord;
use domain::dialogue::Speaker;

fn tone(hz: f64, rate: u32, samples: usize, gain: f64) -> Vec<f32> {
    (0..samples)
        .map(|i| (gain * (std::f64::consts::TAU * hz * i as f64 / f64::from(rate)).sin()) as f32)
        .collect()
}

/// Frequency from interpolated rising zero crossings.
fn frequency(samples: &[f32], rate: u32) -> f64 {
    let crossings: Vec<f64> = samples
        .windows(2)
        .enumerate()
        .filter(|(_, w)| w[0] < 0.0 && w[1] >= 0.0)
        .map(|(i, w)| i as f64 + f64::from(-w[0] / (w[1] - w[0])))
        .collect();
    let (first, last) = (crossings[0], crossings[crossings.len() - 1]);
    (crossings.len() - 1) as f64 * f64::from(rate) / (last - first)
}

#[test]
fn a_tone_keeps_its_pitch_length_and_level_from_every_rate() {
    for rate in [8_000, 11_025, 12_345, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 88_200, 96_000] {
        let wave = Waveform::mono(rate, tone(440.0, rate, rate as usize, 0.5));
        let out = to_house_rate(&wave).expect("a legal rate");
        assert_eq!(out.rate, 24_000);
        assert!(out.len().abs_diff(24_000) <= 1, "{rate} Hz gives {} samples", out.len());
        let inner = &out.channels[0][1_200..22_800];
        let hz = frequency(inner, 24_000);
        assert!((hz - 440.0).abs() < 0.1, "{rate} Hz: tone at {hz}");
        assert!((rms_dbfs(inner) - rms_dbfs(&tone(440.0, 24_000, 21_600, 0.5))).abs() < 0.05);
        // Nothing is delayed by more than about one sample, in which this tone moves by 0.058.
        let reference = tone(440.0, 24_000, 24_000, 0.5);
        let off = inner.iter().zip(&reference[1_200..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 0.07, "{rate} Hz: {off} away from the tone");
    }
}

#[test]
fn what_the_lower_rate_cannot_hold_is_removed_and_stereo_stays_apart() {
    let wave =
        Waveform::stereo(48_000, tone(18_000.0, 48_000, 48_000, 0.5), tone(440.0, 48_000, 48_000, 0.5));
    let out = to_house_rate(&wave).expect("legal");
    assert!(rms_dbfs(&out.channels[0][1_000..23_000]) < -80.0, "18 kHz does not fold back");
    assert!(rms_dbfs(&out.channels[1]) > -10.0);
    let up = resample(&out, 48_000).expect("legal");
    assert!(up.len().abs_diff(48_000) <= 2);
}

#[test]
fn short_clips_and_illegal_rates() {
    for len in [0, 1, 2, 160, 1_023] {
        let out = to_house_rate(&Waveform::mono(16_000, vec![0.1; len])).expect("legal");
        assert!(out.len().abs_diff(len * 3 / 2) <= 1, "{len} samples");
    }
    let bad = to_house_rate(&Waveform::mono(7_999, vec![0.0; 10]));
    assert!(matches!(bad, Err(AudioError::BadRate(7_999))));
}

fn word(speaker: Speaker, start_ms: u64, end_ms: u64) -> AlignedWord {
    AlignedWord { word: "w".into(), start_ms, end_ms, speaker, estimated: false }
}

fn segment(speaker: Speaker, start_ms: u64, end_ms: u64) -> Segment {
    Segment { speaker, start_ms, end_ms }
}

#[test]
fn words_of_one_speaker_join_and_gaps_are_split_in_the_middle() {
    let words = [
        word(Speaker::Agent, 300, 500),
        word(Speaker::User, 1_400, 1_500),
        word(Speaker::Agent, 600, 1_000),
        word(Speaker::User, 1_600, 1_900),
    ];
    let segments = segments_from_words(&words);
    assert_eq!(segments, [segment(Speaker::Agent, 300, 1_000), segment(Speaker::User, 1_400, 1_900)]);
    let mono = vec![0.5; 48_000];
    let out = route_stereo(&mono, 24_000, &segments, Boundary::Midpoint).expect("two segments");
    let (left, right) = (&out.channels[0], &out.channels[1]);
    let edge = 28_800; // 1,200 ms
    assert!(left[edge..].iter().all(|&s| s == 0.0), "the other side is digital zero");
    assert!(right[..edge].iter().all(|&s| s == 0.0));
    assert!(left[240..edge - 240].iter().chain(&right[edge + 240..47_760]).all(|&s| s == 0.5));
    assert!((left[edge - 121] - 0.25).abs() < 0.01, "linear fade of 240 samples");
    let kept = (energy(left) + energy(right)) / energy(&mono);
    assert!(kept > 0.98, "{kept}");
}

#[test]
fn a_boundary_can_follow_the_quietest_place() {
    let mut mono = vec![0.5; 24_000];
    mono[15_600..15_840].fill(0.0); // 650 ms
    let segments = [segment(Speaker::User, 0, 400), segment(Speaker::Agent, 700, 1_000)];
    let out = route_stereo(&mono, 24_000, &segments, Boundary::LowestEnergy).expect("segments");
    assert!(out.channels[1][15_000] > 0.4 && out.channels[0][15_000] == 0.0);
    assert!(out.channels[0][16_200] > 0.4 && out.channels[1][16_200] == 0.0);
    assert!(matches!(route_stereo(&mono, 24_000, &[], Boundary::Midpoint), Err(AudioError::NoSegments)));
    // Overlapping and late segments stay inside the recording.
    let odd = [
        segment(Speaker::User, 0, 900),
        segment(Speaker::Agent, 600, 800),
        segment(Speaker::User, 5_000, 9_000),
    ];
    assert_eq!(route_stereo(&mono, 24_000, &odd, Boundary::Midpoint).expect("segments").len(), 24_000);
}

#[test]
fn clips_lie_on_their_sides_and_may_overlap() {
    let clip = |speaker, start_sample, value: f32| Clip { speaker, start_sample, samples: vec![value; 4] };
    let clips = [clip(Speaker::Agent, 0, 0.5), clip(Speaker::User, 2, 0.25), clip(Speaker::Agent, 3, 0.25)];
    let out = assemble(&clips, None, 24_000);
    assert_eq!(out.channels[0], [0.5, 0.5, 0.5, 0.75, 0.25, 0.25, 0.25]);
    assert_eq!(out.channels[1], [0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 0.0]);
    assert_eq!(assemble(&clips, Some(3), 24_000).len(), 3);
    assert_eq!(assemble(&clips, Some(10), 24_000).len(), 10);
}

#[test]
fn loudness_follows_the_standard_and_normalising_reaches_the_target() {
    // EBU Tech 3341, case 1 and 2: a stereo 1 kHz tone at -23 dBFS peak measures -23 LUFS.
    for level in [-23.0, -33.0] {
        let gain = 10f64.powf(level / 20.0);
        let side = tone(1_000.0, 48_000, 48_000 * 20, gain);
        let lufs = integrated_lufs(&Waveform::stereo(48_000, side.clone(), side)).expect("loud enough");
        assert!((lufs - level).abs() < 0.1, "{lufs} for {level}");
    }
    let mut wave = Waveform::mono(24_000, tone(300.0, 24_000, 48_000, 0.02));
    let gain = normalise(&mut wave, TARGET_LUFS).expect("loud enough");
    assert!(gain > 0.0);
    assert!((integrated_lufs(&wave).expect("loud enough") - TARGET_LUFS).abs() < 0.05);
    assert!(peak(&wave.channels[0]) < 1.0);
    for samples in [vec![0.0; 48_000], tone(300.0, 24_000, 2_400, 0.5), Vec::new()] {
        let error = integrated_lufs(&Waveform::mono(24_000, samples)).expect_err("silent or short");
        assert!(matches!(error, AudioError::TooQuietOrShort { .. }), "{error}");
    }
}
