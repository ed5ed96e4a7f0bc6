//! Ogg-Opus: every cut, every packet length, damage.

use audio::AudioError;
use audio::opus::{OpusReader, OpusWriter, OpusWriterConfig};
use proptest::prelude::*;

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn speech_like(samples: usize) -> Vec<f32> {
    (0..samples)
        .map(|i| {
            let t = i as f32 / 24_000.0;
            0.3 * (t * 1_382.0).sin() + 0.1 * (t * 5_027.0).sin() * (t * 18.0).sin()
        })
        .collect()
}

fn written(packet_samples: usize, samples: usize) -> Result<Vec<u8>, AudioError> {
    let mut writer = OpusWriter::new(OpusWriterConfig { packet_samples, ..OpusWriterConfig::default() })?;
    let mut out = writer.header();
    for frame in speech_like(samples).chunks(1_920) {
        out.extend(writer.push(frame)?);
    }
    out.extend(writer.finish()?);
    Ok(out)
}

#[test]
fn every_packet_length_goes_round_and_sounds_the_same() -> TestResult {
    for packet in [60, 120, 240, 480, 960, 1_440] {
        let mut reader = OpusReader::new()?;
        let pcm = reader.push(&written(packet, 19_200)?);
        assert!(pcm.len() >= 19_200 && pcm.len() < 19_200 + packet, "{packet}: {}", pcm.len());
        assert_eq!(reader.stats().bad_packets + reader.stats().bad_pages, 0);
        // The codec delays by its look-ahead; find it and compare there.
        let original = speech_like(19_200);
        let error = |lag: usize| -> f32 {
            (4_800..12_000).map(|i| (pcm[i + lag] - original[i]).powi(2)).sum::<f32>()
        };
        let best = (0..400).map(error).fold(f32::INFINITY, f32::min);
        let power: f32 = original[4_800..12_000].iter().map(|s| s * s).sum();
        assert!(best < 0.05 * power, "{packet}: error {best} of {power}");
    }
    assert!(matches!(
        OpusWriter::new(OpusWriterConfig { packet_samples: 2_400, ..OpusWriterConfig::default() }),
        Err(AudioError::BadPacketLength(2_400))
    ));
    Ok(())
}

#[test]
fn a_frame_becomes_two_pages_at_once() -> TestResult {
    let mut writer = OpusWriter::new(OpusWriterConfig::default())?;
    let header = writer.header();
    assert_eq!(header.windows(4).filter(|w| w == b"OggS").count(), 2);
    let frame = writer.push(&speech_like(1_920))?;
    assert_eq!(frame.windows(4).filter(|w| w == b"OggS").count(), 2);
    assert!(writer.push(&[0.0; 959])?.is_empty());
    assert!(!writer.push(&[0.0; 1])?.is_empty());
    Ok(())
}

#[test]
fn a_damaged_page_costs_its_own_sound_only() -> TestResult {
    let stream = written(960, 19_200)?;
    let pages: Vec<usize> = (0..stream.len()).filter(|&i| stream[i..].starts_with(b"OggS")).collect();
    let whole = OpusReader::new()?.push(&stream).len();
    // A flipped bit in the sound, in the length table and in the capture pattern.
    for (offset, page) in [(40, 5), (26, 5), (0, 5), (5, 7)] {
        let mut damaged = stream.clone();
        damaged[pages[page] + offset] ^= 0xf0;
        let mut reader = OpusReader::new()?;
        let pcm: usize = damaged.chunks(100).map(|c| reader.push(c).len()).sum();
        assert_eq!(pcm, whole - 960, "offset {offset}");
        let stats = reader.stats();
        assert!(stats.bad_pages + stats.skipped_bytes > 0, "{stats:?}");
    }
    // A lost header page loses no sound.
    assert_eq!(OpusReader::new()?.push(&stream[pages[1] - 3..]).len(), whole);
    // Empty messages and noise are nothing.
    let mut reader = OpusReader::new()?;
    assert!(reader.push(&[]).is_empty() && reader.push(&[7; 1_000]).is_empty());
    assert_eq!(reader.push(&stream).len(), whole);
    Ok(())
}

/// Repacks a stream's packets so that pages hold several packets and packets cross pages.
fn repaged(stream: &[u8], segments_per_page: usize) -> Vec<u8> {
    let (mut lacing, mut body, mut at) = (Vec::new(), Vec::new(), 0);
    while at < stream.len() {
        let n = usize::from(stream[at + 26]);
        let table = &stream[at + 27..at + 27 + n];
        let len: usize = table.iter().map(|&l| usize::from(l)).sum();
        body.extend_from_slice(&stream[at + 27 + n..at + 27 + n + len]);
        lacing.extend_from_slice(table);
        at += 27 + n + len;
    }
    let (mut out, mut at, mut open) = (Vec::new(), 0, false);
    for (sequence, table) in lacing.chunks(segments_per_page).enumerate() {
        let len: usize = table.iter().map(|&l| usize::from(l)).sum();
        let mut page = b"OggS\0".to_vec();
        page.push(u8::from(open));
        page.extend([0; 8]);
        page.extend(9u32.to_le_bytes());
        page.extend(u32::try_from(sequence).unwrap_or(0).to_le_bytes());
        page.extend([0; 4]);
        page.push(u8::try_from(table.len()).unwrap_or(0));
        page.extend_from_slice(table);
        page.extend_from_slice(&body[at..at + len]);
        let mut crc = 0u32;
        for &byte in &page {
            crc ^= u32::from(byte) << 24;
            for _ in 0..8 {
                crc = if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 };
            }
        }
        page[22..26].copy_from_slice(&crc.to_le_bytes());
        out.extend(page);
        at += len;
        open = table.last() == Some(&255);
    }
    out
}

#[test]
fn packets_may_cross_pages() -> TestResult {
    let mut writer = OpusWriter::new(OpusWriterConfig { bitrate: 128_000, ..OpusWriterConfig::default() })?;
    let mut stream = writer.header();
    stream.extend(writer.push(&speech_like(19_200))?);
    let whole = OpusReader::new()?.push(&stream);
    assert_eq!(whole.len(), 19_200);
    for segments in [1, 2, 3, 7] {
        let mut reader = OpusReader::new()?;
        assert_eq!(reader.push(&repaged(&stream, segments)), whole, "{segments} segments a page");
        assert_eq!(reader.stats().bad_packets, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn messages_may_cut_the_stream_anywhere(cuts in prop::collection::vec(1usize..700, 1..60)) {
        let stream = written(480, 9_600).expect("written");
        let whole = OpusReader::new().expect("decoder").push(&stream);
        let mut reader = OpusReader::new().expect("decoder");
        let (mut pcm, mut at) = (Vec::new(), 0);
        for len in cuts.into_iter().chain([stream.len()]) {
            let end = (at + len).min(stream.len());
            pcm.extend(reader.push(&stream[at..end]));
            at = end;
        }
        prop_assert_eq!(pcm, whole);
    }

    #[test]
    fn arbitrary_damage_never_panics(
        flips in prop::collection::vec((0usize..2_000, any::<u8>()), 0..40),
        cut in 1usize..900,
    ) {
        let mut stream = written(960, 9_600).expect("written");
        let len = stream.len();
        for (at, value) in flips {
            stream[at % len] ^= value;
        }
        let mut reader = OpusReader::new().expect("decoder");
        let samples: usize = stream.chunks(cut).map(|c| reader.push(c).len()).sum();
        prop_assert!(samples <= 9_600 + 2_880 * 12);
    }
}
