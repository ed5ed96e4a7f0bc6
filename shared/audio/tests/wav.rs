//! WAV files of every accepted kind, and what is said about the others.

use audio::wav::{encode_pcm16, into_pcm16, parse, read, write_pcm16};
use audio::{AudioError, WavLimits, Waveform};
use hound::{SampleFormat, WavSpec, WavWriter};
use proptest::prelude::*;

fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 / len as f32).mul_add(1.8, -0.9)).collect()
}

/// WAV bytes written by another library in the given format.
fn wav(bits: u16, format: SampleFormat, channels: u16, samples: &[f32]) -> Vec<u8> {
    let spec = WavSpec { channels, sample_rate: 24_000, bits_per_sample: bits, sample_format: format };
    let mut out = std::io::Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut out, spec).expect("a legal format");
    for &s in samples {
        match format {
            SampleFormat::Float => writer.write_sample(s),
            SampleFormat::Int => writer.write_sample((f64::from(s) * f64::from(1u32 << (bits - 1))) as i32),
        }
        .expect("memory");
    }
    writer.finalize().expect("memory");
    out.into_inner()
}

#[test]
fn every_pcm_width_and_float_give_the_same_sound() {
    let samples = ramp(480);
    for (bits, format, step) in [
        (8, SampleFormat::Int, 1.0 / 128.0),
        (16, SampleFormat::Int, 1.0 / 32_768.0),
        (24, SampleFormat::Int, 1e-6),
        (32, SampleFormat::Int, 1e-6),
        (32, SampleFormat::Float, 0.0),
    ] {
        let wave = parse(&wav(bits, format, 1, &samples), &WavLimits::default()).expect("legal");
        assert_eq!((wave.rate, wave.len(), wave.duration_ms()), (24_000, 480, 20));
        for (got, want) in wave.channels[0].iter().zip(&samples) {
            assert!((got - want).abs() <= step, "{bits} bits: {got} for {want}");
        }
    }
}

#[test]
fn stereo_keeps_its_sides_and_a_file_gives_back_what_was_written() {
    let wave = Waveform::stereo(24_000, vec![0.5; 100], vec![-0.25; 60]);
    assert_eq!(wave.channels[1].len(), 100, "the shorter side is filled up");
    let path = std::env::temp_dir().join(format!("audio-wav-{}.wav", std::process::id()));
    write_pcm16(&path, &wave).expect("written");
    let back = read(&path, &WavLimits::default()).expect("read");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(back, wave);
    assert_eq!(back.mix_down().channels, [[vec![0.125; 60], vec![0.25; 40]].concat()]);
    assert!(matches!(read(&path, &WavLimits::default()), Err(AudioError::File { path: p, .. }) if p == path));
}

#[test]
fn samples_beyond_full_scale_are_clipped() {
    assert_eq!([2.0, 1.0, -1.0, -3.0].map(into_pcm16), [32_767, 32_767, -32_768, -32_768]);
}

#[test]
fn a_cut_file_says_how_much_is_missing() {
    let mut bytes = wav(16, SampleFormat::Int, 1, &ramp(100));
    bytes.truncate(bytes.len() - 50);
    let error = parse(&bytes, &WavLimits::default()).expect_err("cut");
    assert!(matches!(error, AudioError::Truncated { declared: 200, present: 150 }), "{error}");
}

#[test]
fn a_streamed_wav_without_sizes_is_read_to_its_end() {
    for size in [0u32, u32::MAX] {
        let mut bytes = wav(16, SampleFormat::Int, 1, &ramp(100));
        let data = bytes.len() - 200;
        bytes[data - 4..data].copy_from_slice(&size.to_le_bytes());
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        bytes.push(7); // half a sample
        assert_eq!(parse(&bytes, &WavLimits::default()).expect("mended").len(), 100);
    }
}

#[test]
fn what_is_not_accepted_is_named() {
    let limits = WavLimits { max_seconds: 0.01, max_channels: 2 };
    let parse_error = |bytes: &[u8]| parse(bytes, &limits).expect_err("refused").to_string();
    assert_eq!(parse_error(b"ID3\x04"), "not a wav file: 4 bytes starting with \"ID3\\x04\"");
    assert_eq!(parse_error(b"RIFF\0\0\0\0WAVE"), "not a wav file: there is no data chunk");
    let long = wav(16, SampleFormat::Int, 1, &ramp(2_400));
    assert_eq!(parse_error(&long), "audio lasts 0.1 s, at most 0.0 s are accepted");
    let wide = wav(16, SampleFormat::Int, 4, &ramp(40));
    assert_eq!(parse_error(&wide), "audio has 4 channels, at most 2 are accepted");
    let nan = wav(32, SampleFormat::Float, 2, &[0.0, 0.0, 0.0, f32::NAN]);
    assert_eq!(parse_error(&nan), "sample 1 of channel 1 is not a finite number");
    let uneven = Waveform { rate: 24_000, channels: vec![vec![0.0; 3], vec![0.0; 4]] };
    assert!(matches!(encode_pcm16(&uneven), Err(AudioError::UnevenChannels(l)) if l == [3, 4]));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..60, v in any::<u8>()) {
        let _ = parse(&bytes, &WavLimits::default());
        let mut damaged = wav(16, SampleFormat::Int, 2, &ramp(64));
        damaged[at] = v;
        damaged.append(&mut bytes);
        let _ = parse(&damaged, &WavLimits::default());
    }
}
