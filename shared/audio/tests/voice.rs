//! Voice clips: any rate and layout end as the same sound, and limits are told by their numbers.

use audio::voice::{LongVoice, voice_samples, voice_samples_with};
use audio::{AudioError, Waveform, loudness, wav};
use domain::frame::SAMPLE_RATE;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn tone(rate: u32, seconds: f64) -> Vec<f32> {
    let count = (f64::from(rate) * seconds) as usize;
    let step = std::f64::consts::TAU * 440.0 / f64::from(rate);
    (0..count).map(|i| (0.2 * (step * i as f64).sin()) as f32).collect()
}

/// Frequency by zero crossings.
fn frequency(samples: &[f32]) -> f64 {
    let inner = &samples[2_400..samples.len() - 2_400];
    let crossings: Vec<f64> = inner
        .windows(2)
        .enumerate()
        .filter(|(_, w)| w[0] < 0.0 && w[1] >= 0.0)
        .map(|(i, w)| i as f64 + f64::from(-w[0]) / f64::from(w[1] - w[0]))
        .collect();
    let (first, last) = (crossings[0], crossings[crossings.len() - 1]);
    (crossings.len() - 1) as f64 * f64::from(SAMPLE_RATE) / (last - first)
}

#[test]
fn a_tone_keeps_its_pitch_and_length_at_every_rate() -> Outcome {
    for rate in [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000] {
        let samples = voice_samples(&wav::encode_pcm16(&Waveform::mono(rate, tone(rate, 1.0)))?)?;
        let seconds = samples.len() as f64 / f64::from(SAMPLE_RATE);
        assert!((seconds - 1.0).abs() < 0.01, "{rate} Hz: {seconds} s");
        let found = frequency(&samples);
        assert!((found - 440.0).abs() < 2.0, "{rate} Hz: {found} Hz");
        let lufs = loudness::integrated_lufs(&Waveform::mono(SAMPLE_RATE, samples))?;
        assert!((lufs + 24.0).abs() < 0.1, "{rate} Hz: {lufs} LUFS");
    }
    Ok(())
}

#[test]
fn channels_are_mixed_and_not_chosen() -> Outcome {
    let silent = vec![0.0; SAMPLE_RATE as usize];
    let one = tone(SAMPLE_RATE, 1.0);
    let mono = voice_samples(&wav::encode_pcm16(&Waveform::mono(SAMPLE_RATE, one.clone()))?)?;
    for (left, right) in [(one.clone(), silent.clone()), (silent, one)] {
        let stereo = voice_samples(&wav::encode_pcm16(&Waveform::stereo(SAMPLE_RATE, left, right))?)?;
        let worst = mono.iter().zip(&stereo).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "the voice was on one side: {worst}");
    }
    Ok(())
}

#[test]
fn lengths_outside_the_limits_are_told_and_a_long_one_may_be_cut() -> Outcome {
    let clip = |seconds| wav::encode_pcm16(&Waveform::mono(16_000, tone(16_000, seconds)));
    let error = voice_samples(&clip(600.0)?).expect_err("ten minutes");
    assert!(matches!(error, AudioError::TooLong { .. }));
    assert!(error.to_string().contains("600.0 s") && error.to_string().contains("60.0 s"), "{error}");
    let cut = voice_samples_with(&clip(600.0)?, LongVoice::Trim)?;
    assert_eq!(cut.len(), 60 * SAMPLE_RATE as usize);
    assert!(voice_samples(&clip(60.0)?).is_ok());
    let error = voice_samples(&clip(0.4)?).expect_err("as short as one block");
    assert!(error.to_string().contains("400 ms"), "{error}");
    assert!(voice_samples(&clip(0.5)?).is_ok());
    let silent = wav::encode_pcm16(&Waveform::mono(16_000, vec![0.0; 16_000]))?;
    assert!(matches!(voice_samples(&silent), Err(AudioError::TooQuietOrShort { .. })));
    let fast = wav::encode_pcm16(&Waveform::mono(192_000, tone(192_000, 1.0)))?;
    assert!(matches!(voice_samples(&fast), Err(AudioError::BadRate(192_000))));
    let three = Waveform { rate: 16_000, channels: vec![tone(16_000, 1.0); 3] };
    let error = voice_samples(&wav::encode_pcm16(&three)?).expect_err("three channels");
    assert!(matches!(error, AudioError::TooManyChannels { channels: 3, limit: 2 }));
    assert!(matches!(voice_samples(&[0; 48_000]), Err(AudioError::NotWav(_))), "raw samples have no rate");
    Ok(())
}
